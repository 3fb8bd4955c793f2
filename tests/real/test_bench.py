"""Every real model has a row with figures, and answers as it does alone."""

from __future__ import annotations

import math

import pytest

import onnxport
from fixtures import models

pytestmark = [pytest.mark.real, pytest.mark.exhaustive]


@pytest.mark.parametrize("key", models.keys())
def test_a_real_model_is_measured(key: str) -> None:
    path = models.path(key)
    report = onnxport.bench_models(path, runs=2, warmup=1, shape=models.shapes(key))
    (row,) = report.rows
    assert row.status == "measured", row.why
    assert row.latency is not None
    assert row.latency.median > 0
    assert row.memory is not None
    assert row.memory.bare < row.memory.imported < row.memory.peak
    if path.suffix == ".onnx":
        assert row.accuracy is None or row.accuracy.sqnr == math.inf
