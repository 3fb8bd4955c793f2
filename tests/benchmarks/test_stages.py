"""The waterfall of a run: its stages add up to what the run took."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.stages import per_stage, waterfall

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"


@pytest.mark.skipif(sys.platform != "linux", reason="it reads the CPU clocks of other processes")
def test_the_stages_of_a_proof_add_up_to_its_cpu_time() -> None:
    fall = waterfall("digits", DIGITS, None)
    assert fall.run.made, fall.run.said
    counted = sum(entry.cpu + entry.called for entry in fall.stages.values())
    assert counted == pytest.approx(fall.run.cpu_seconds, rel=0.02)
    for stage in ("imports", "load", "inputs", "sessions", "reference", "probes", "candidate", "processes"):
        assert fall.cpu(stage) > 0, stage
    assert fall.stages["reference"].called > 0, "its process computed"
    assert fall.cpu("imports") > fall.cpu("candidate"), "the digits take less than the libraries"
    assert fall.run.peak > 50
    rows = list(per_stage([fall, fall]))
    assert rows[-1].startswith(f"| all | {2 * fall.run.cpu_seconds:.2f} ")
