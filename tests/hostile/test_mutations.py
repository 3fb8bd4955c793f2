"""Changed files of every format end in one sentence and a documented code, in little time and memory.

`make test` changes MANY files of each format by fixed seeds, and a few of those that frameworks read; `make soak`
WHOLE of each. A finding is mended with a test of its kind in test_*_attacks.py or test_findings.py.
"""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.hostile.campaign import Campaign
from tests.hostile.forks import Forks, forks
from tests.hostile.mutation import SYNTAXES, mutate
from tests.hostile.subjects import SUBJECTS
from tests.soak.project import descendants, wait_until_gone

MANY, WHOLE = 100, 10_000
LIGHT = [name for name, subject in SUBJECTS.items() if not subject.in_child]
HEAVY = [name for name, subject in SUBJECTS.items() if subject.in_child]


def check(name: str, seeds: range, folder: Path, running: Forks) -> None:
    needs = SUBJECTS[name].needs
    if needs and find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    campaign = Campaign(name, folder)
    campaign.warm(running)
    trials = (campaign.trial(seed, running) for seed in seeds)
    faults = [f"{name} {each.seed} {' '.join(each.command)}: {each.fault}" for each in trials if each.fault]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", LIGHT)
def test_changed_files_are_read_or_refused(name: str, tmp_path: Path, running: Forks) -> None:
    check(name, range(MANY), tmp_path, running)


@pytest.mark.parametrize("name", HEAVY)
def test_changed_files_of_frameworks_are_read_or_refused(name: str, tmp_path: Path, running: Forks) -> None:
    check(name, range(MANY), tmp_path, running)


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", SUBJECTS)
def test_ten_thousand_changed_files_are_read_or_refused(name: str, tmp_path: Path, running: Forks) -> None:
    check(name, range(MANY, WHOLE), tmp_path, running)


def test_a_server_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    with forks(tmp_path / "forks") as running:
        for _ in range(120):  # more than a process has
            running.run(tmp_path, ":imports", shared=True)
        started = descendants(running.process)
        assert len(started) == 1
    wait_until_gone([running.process, *started], 10)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_seed_gives_one_change(syntax: str) -> None:
    """So that a finding can be made again; and changes are of many kinds."""
    data = b'{"a": [1, 2], "shape": (1, 2)}\nkey: value\n' * 3
    made = [mutate(data, syntax, random.Random(seed)) for seed in range(50)]
    assert made == [mutate(data, syntax, random.Random(seed)) for seed in range(50)]
    assert len(set(made)) > 25
