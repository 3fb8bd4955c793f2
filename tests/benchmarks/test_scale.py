"""The benchmark of large models: what it writes, and what converting that takes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.optimize import optimized
from benchmarks.scale import rows, write_chain


def test_the_chain_is_a_model_with_weights_beside_it_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_chain(tmp_path / f"{name}.onnx", 5 * 4 * 64 * 64, width=64)
    assert (tmp_path / "one.data").stat().st_size == 5 * 4 * 64 * 64
    assert (tmp_path / "one.data").read_bytes() == (tmp_path / "other.data").read_bytes()
    onnx.checker.check_model(str(tmp_path / "one.onnx"), full_check=True)
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    (y,) = onnxruntime.InferenceSession(tmp_path / "one.onnx").run(None, {"x": x})
    assert 0.1 < np.std(y) < 10, "neither vanishing nor exploding"


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, which Linux has")
def test_a_large_model_takes_little_more_than_its_weights_twice(tmp_path: Path) -> None:
    for row in rows(0.4e9, tmp_path, []):
        assert row.cost.peak < 3.2 * row.size, f"{row.command}: {row.cells()}"


# What the commands and libraries take themselves, of which a model of 3 GB would see little.
_ITSELF = 150e6


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, which Linux has")
def test_a_large_model_is_optimized_without_a_copy_of_its_weights(tmp_path: Path) -> None:
    row = optimized(0.4e9, tmp_path)
    assert row.cost.peak < 1.1 * row.size + _ITSELF, row.cells()
