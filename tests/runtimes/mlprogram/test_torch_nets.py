"""Nets that coremltools' own frontend made of torch's: the evaluator computes what torch does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.mlprogram.evaluator import Evaluator

pytestmark = pytest.mark.slow

NETS = ("convolutions", "groupnorm", "lstm", "bilstm", "gru", "rnn", "encoder", "unet")
# Of the output's scale.
TOLERANCE = {"fp32": 2e-6, "fp16": 2e-3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("torch_nets")
    subprocess.run(
        [sys.executable, "-m", "tests.runtimes.mlprogram.torch_nets", made], check=True, capture_output=True
    )
    return made


@pytest.mark.parametrize("target", ["iOS16", "iOS18"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("net", NETS)
def test_evaluates_as_torch(folder: Path, net: str, precision: str, target: str) -> None:
    stem = f"{net}-{precision}-{target}"
    stored = np.load(folder / f"{stem}.npz")
    function = read_package(folder / f"{stem}.mlpackage").functions["main"]
    evaluator = Evaluator(function)
    for key in (each for each in stored if each.startswith("x")):
        found = evaluator.run({"x": stored[key]})
        for place, name in enumerate(function.block.outputs):
            expected = stored[f"y{key[1:]}_{place}"]
            assert found[name].shape == expected.shape
            error = np.abs(found[name].astype(np.float32) - expected).max()
            assert error <= TOLERANCE[precision] * np.abs(expected).max()
