"""Bench and profile as the commands run them: which files they guard while they measure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onnxport.bench.gate import Gate
from onnxport.bench.measurement import Measured
from onnxport.bench.params import BenchParams
from onnxport.bench.report import Row, Standard
from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.runner import measurements
from tests.reports.bench import handmade

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"


class SlowGate(Gate):
    """Calls every row slower than its baseline, so that it is measured again."""

    def judge(self, rows: Sequence[Row], at: Any) -> tuple[Row, ...]:
        slower = Standard(standing="slower", limit=1.1, ratio=1.5)
        return tuple(row.model_copy(update={"against": slower}) for row in rows)


@pytest.mark.parametrize("round_", [1, 2])
def test_a_file_that_changes_in_either_measurement_is_refused(
    round_: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(DIGITS.read_bytes())
    rounds = 0

    def measure(artifacts: Sequence[Artifact], *_: Any) -> Measured:
        nonlocal rounds
        rounds += 1
        if rounds == round_:
            os.utime(model, ns=(0, 0))
        return Measured(rows=(handmade.row(str(model), 1.0, 5.0),), inputs="generated")

    monkeypatch.setattr(measurements, "measure", measure)
    monkeypatch.setattr(measurements, "make_gate", lambda *_: SlowGate())
    with pytest.raises(InputError, match="changed while it was read"):
        measurements.bench([Artifact.open(model)], BenchParams())
    assert rounds == 2
