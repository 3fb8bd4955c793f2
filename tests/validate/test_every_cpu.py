"""The installed command says the same on this machine and on a CPU without VNNI: verdict and figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import lesser_cpu
from tests.faults import lowered

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cpu")


def _told(run: subprocess.CompletedProcess[str]) -> tuple[str, float, dict[str, Any] | None]:
    """Verdict, SQNR in dB and what saturation would cost."""
    assert run.returncode in (0, 1), run.stderr[-2000:]
    report = json.loads(run.stdout)["artifacts"][0]["report"]
    (quality,) = (each for each in report["judgements"] if each["question"] == "quality")
    return report["verdict"], quality["outputs"][0]["sqnr_db"], report["saturation"]


@pytest.mark.parametrize("precision", ["int8", "dynamic"])
def test_a_verdict_does_not_depend_on_the_cpu(precision: str, root: Path, tmp_path: Path) -> None:
    if why := lesser_cpu.lacking():
        pytest.skip(why)
    where = lowered.place("digits", root)
    options = ["--for-cpu", "vnni"] if precision == "int8" else []
    candidate = tmp_path / f"{precision}.onnx"
    calibration = ["--calib", where.calibration] if precision == "int8" else []
    made = _command(
        "quantize", where.source, f"--{precision}", *calibration, *options, "-o", candidate, "--no-validate"
    )
    assert made.returncode == 0, made.stderr
    arguments = ("validate", where.source, candidate, "--inputs", where.tests, "--samples", "2", "--json")
    here = _told(_command(*arguments))
    lesser = lesser_cpu.python(tmp_path / "haswell")
    there = _told(lesser_cpu.run(lesser, "-m", "onnxport", *arguments, timeout=800))
    assert there[0] == here[0]
    assert there[1] == pytest.approx(here[1], abs=0.01)
    assert (there[2] is None) == (here[2] is None)
    if here[2] is not None and there[2] is not None:
        assert there[2]["saturated_db"] == pytest.approx(here[2]["saturated_db"], abs=0.01)


def _command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onnxport", *map(str, arguments)], capture_output=True, text=True, check=False
    )
