"""Faults in files of lower precision are found by the installed command with its defaults; right files pass.

pytest -m slow tests/faults/test_lowered.py
python -m tests.faults.lowered --root FOLDER
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.faults import lowered
from tests.faults.lowered import FAULTS, LOSSY, MODELS, PRECISIONS, Row

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SHARE = 0.8  # of the faults that cost 1 dB or more
# The last of each cost less than a node's own rounding, or are ranges that cut off too much.
HARD = ("dropped_bias", "activation_range", "channel_scale")
ROWS = [
    row
    for row in lowered.rows(("digits", "glyphs"), tuple(PRECISIONS), 1)
    if row.fault not in HARD and (row.model, row.fault) != ("digits", "transposed")
]
SAMPLE = random.Random(0).sample(ROWS, 6)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lowered")


def test_there_are_nine_kinds_of_faults_and_eight_models() -> None:
    assert len(FAULTS) >= 9
    assert len(MODELS) >= 8


@pytest.mark.parametrize("row", SAMPLE, ids=str)
def test_a_fault_that_costs_a_decibel_is_found(row: Row, root: Path) -> None:
    outcome = lowered.judge(row, root)
    assert outcome is None or outcome.found, outcome


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_right_file_passes(precision: str, root: Path) -> None:
    outcome = lowered.judge_right("glyphs", precision, root)
    assert outcome is not None
    assert outcome.verdict in ("proven", "measured")
    assert not outcome.found


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
def test_most_faults_are_found_and_no_right_file_is_refused(root: Path) -> None:
    right = {pair: lowered.judge_right(*pair, root) for pair in itertools.product(MODELS, PRECISIONS)}
    refused = {pair: each for pair, each in right.items() if each is not None and each.found}
    assert refused.keys() == LOSSY, refused
    assert all(each.is_lossy for each in refused.values()), refused
    outcomes = [lowered.judge(row, root) for row in lowered.rows(tuple(MODELS), tuple(PRECISIONS), 1)]
    found = [each.found for each in outcomes if each is not None]
    assert sum(found) >= SHARE * len(found)
