"""The files that `--against` accepts, and rows that are measured twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxport.bench.gate import Gate, keep_faster, make_gate
from onnxport.bench.params import BenchParams
from onnxport.bench.report import Row, Standard
from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from tests.reports.bench import handmade

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
MACHINE = handmade.report([]).machine


def gate(**options: Any) -> Gate:
    return make_gate([Artifact.open(DIGITS)], BenchParams(**options), MACHINE)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"against": Path("none.json")}, 4, "none.json does not exist"),
        ({"against": Path("none.onnx")}, 4, "none.onnx does not exist"),
        ({"against": DIGITS}, 2, "is both the model and its baseline"),
        ({"max_slowdown": 1.2}, 2, "--max-slowdown needs --against"),
        ({"force": True}, 2, "--force needs --against"),
    ],
)
def test_what_cannot_be_compared_with_is_refused(options: dict[str, Any], code: int, said: str) -> None:
    with pytest.raises(OnnxportError, match=said) as caught:
        gate(**options)
    assert caught.value.exit_code == code


def test_a_baseline_of_other_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(handmade.report([handmade.row("net.onnx", 1.0, 5.0)]).model_dump_json())
    with pytest.raises(OnnxportError, match="has no row that this run measures") as caught:
        gate(against=tmp_path / "b.json")
    assert caught.value.exit_code == 2


def row(ratio: float, standing: str) -> Row:
    standard = Standard(standing=standing, limit=1.1, ratio=ratio)  # type: ignore[arg-type]
    return handmade.row("net.onnx", 1.0, 5.0, against=standard)


def test_a_slower_row_is_measured_again_and_the_lower_of_the_two_counts() -> None:
    slow, kept = row(1.4, "slower"), row(1.02, "kept")
    doubting = Gate()
    assert doubting.rows_to_repeat([slow, kept]) == (slow,)
    assert keep_faster([slow], [kept]) == (kept,)
    assert keep_faster([slow], [row(1.6, "slower")]) == (slow,)
    assert keep_faster([slow], []) == (slow,)
