"""No change makes quantized models worse unnoticed: reference.yaml has the figures, a scorer that is not ours measures.

python -m tests.quantize.test_reference     # prints what each row measures now
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import onnxport
from benchmarks.quantizing import scoring
from fixtures import samples

pytestmark = pytest.mark.real

ROWS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("reference.yaml").read_text(encoding="utf-8")
)


def measured(row: Mapping[str, Any], folder: Path) -> float:
    """The SQNR that a row's model has now: the mean over its draws of calibration samples."""
    tests = samples.write(row["model"], folder / "test", "test", row["test"])
    answers = scoring.answers(samples.path(row["model"]), tests)
    return statistics.mean(
        _sqnr(row, folder / str(draw), draw, answers, tests) for draw in range(row.get("draws", 1))
    )


def _sqnr(
    row: Mapping[str, Any], folder: Path, draw: int, answers: scoring.Answers, tests: Sequence[Path]
) -> float:
    count, out = row["calibration"], folder / "int8.onnx"
    samples.write(row["model"], folder / "calibration", "calibration", count, draw * count)
    onnxport.quantize_model(
        samples.path(row["model"]),
        "int8",
        output=out,
        calib=folder / "calibration",
        cache=False,
        validate=False,
        **row.get("options", {}),
    )
    found = scoring.score(out, answers, tests)
    assert not found.said, found.said
    return found.sqnr


def _marked() -> Iterator[Any]:
    for row in ROWS:
        marks = () if row.get("always") else (pytest.mark.exhaustive, pytest.mark.slow)
        yield pytest.param(row, marks=marks, id="-".join([Path(row["model"]).stem, *row.get("options", {})]))


@pytest.mark.parametrize("row", list(_marked()))
def test_a_quantized_model_is_as_right_as_it_was(row: Mapping[str, Any], tmp_path: Path) -> None:
    assert measured(row, tmp_path) >= row["sqnr"] - row["slack"]


if __name__ == "__main__":
    for each in ROWS:
        with tempfile.TemporaryDirectory() as temp:
            now = measured(each, Path(temp))
        print(f"{each['model']} {each.get('options', '')}: {now:.1f} (was {each['sqnr']})", flush=True)
