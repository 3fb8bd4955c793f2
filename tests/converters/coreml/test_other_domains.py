"""Operators of other domains than ONNX's own leave the Core ML route with ONNX Runtime's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.conformance.coreml import CoremlConformance
from tests.optimizers import test_ml
from tests.optimizers.rewritten import Array, differences, model_of, run
from tests.optimizers.test_microsoft import CASES, Case, made
from tests.optimizers.test_ml import FORESTS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_microsoft(case: Case, coreml: CoremlConformance) -> None:
    model, feeds = made(case)
    answer = coreml.convert_and_run(model, [feeds])[0]
    assert not differences(run(model, feeds), list(answer.values()), atol=max(case.atol, 1e-4))


@pytest.mark.parametrize(("op", "attributes", "x", "dtypes"), test_ml.CASES)
def test_machine_learning(
    op: str, attributes: dict[str, Any], x: Array, dtypes: list[type], coreml: CoremlConformance
) -> None:
    outputs = {f"y{i}": dtype for i, dtype in enumerate(dtypes)}
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    model = model_of(node, {"x": x}, {}, outputs)
    answer = coreml.convert_and_run(model, [{"x": x}])[0]
    assert not differences(run(model, {"x": x}), list(answer.values()))


@pytest.mark.parametrize("probable", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_support_vector_machines(classes: int, probable: bool, coreml: CoremlConformance) -> None:
    random = np.random.default_rng(classes)
    attributes = test_ml.machine(random, classes, probable=probable)
    node = helper.make_node("SVMClassifier", ["x"], ["y", "z"], domain="ai.onnx.ml", **attributes)
    feeds = {"x": random.standard_normal((7, test_ml.FEATURES)).astype(np.float32)}
    model = model_of(node, feeds, {}, {"y": np.int64, "z": np.float32})
    answer = coreml.convert_and_run(model, [feeds])[0]
    assert not differences(run(model, feeds), list(answer.values()), atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op", FORESTS)
def test_forests_at_several_batches(op: str, seed: int, coreml: CoremlConformance) -> None:
    make, outputs = FORESTS[op]
    attributes, x = make(np.random.default_rng(seed))
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    model = model_of(node, {"x": x}, {}, outputs)
    feeds = [{"x": x}, {"x": x[:1]}]
    for feed, answer in zip(feeds, coreml.convert_and_run(model, feeds), strict=True):
        assert not differences(run(model, feed), list(answer.values()))
