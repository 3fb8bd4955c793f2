"""Reports of real runs: the command in a fresh process, once for a right artefact and once for a wrong one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxport.reports import FORMATS
from onnxport.reports.run_report import RunReport
from tests.faults import weights
from tests.reports.handmade import RUNS

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `passing.*` and `failing.*`, a report in every format of a run that ends so."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "digits.onnx").write_bytes(DIGITS.read_bytes())
    model = onnx.load(DIGITS)
    weights.swapped_channels(model, random.Random(1))
    onnx.save(model, folder / "broken.onnx")
    run(folder, 0, "convert", "digits.onnx", "--to", "tflite", *reports("passing"))
    run(folder, 1, "validate", "broken.onnx", "digits.tflite", *reports("failing"))
    return folder


def reports(name: str) -> list[str]:
    return [word for suffix in FORMATS for word in ("--report", f"{name}{suffix}")]


def run(folder: Path, code: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "onnxport", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


@pytest.fixture(params=RUNS)
def handmade(request: pytest.FixtureRequest) -> RunReport:
    """One made by hand after the other."""
    make: Callable[[], RunReport] = RUNS[request.param]
    return make()


@pytest.fixture(params=["passing", "failing"])
def outcome(request: pytest.FixtureRequest) -> str:
    return str(request.param)
