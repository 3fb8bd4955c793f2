"""Operators of other domains than ONNX's own leave the TFLite route with ONNX Runtime's answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from onnxport.core.errors import CannotConvertError
from onnxport.optimizers.node_marks import REASON
from tests.conformance.tflite import Conformance
from tests.converters.tflite import models
from tests.optimizers.rewritten import differences, model_of, run
from tests.optimizers.test_microsoft import CASES, Case, made
from tests.optimizers.test_ml import FORESTS


@pytest.fixture(scope="module")
def conformance() -> Iterator[Conformance]:
    with Conformance() as conformance:
        yield conformance


@pytest.mark.parametrize("case", CASES, ids=str)
def test_microsoft(case: Case, conformance: Conformance) -> None:
    model, feeds = made(case)
    answer = conformance.convert_and_run(model, [feeds])[0]
    assert not differences(run(model, feeds), list(answer.values()), atol=max(case.atol, 1e-4))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op", FORESTS)
def test_forests_at_several_batches(op: str, seed: int, conformance: Conformance) -> None:
    make, outputs = FORESTS[op]
    attributes, x = make(np.random.default_rng(seed))
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    model = model_of(node, {"x": x}, {}, outputs)
    feeds = [{"x": x}, {"x": x[:1]}]
    for feed, answer in zip(feeds, conformance.convert_and_run(model, feeds), strict=True):
        assert not differences(run(model, feed), list(answer.values()))


def test_the_refusal_of_a_rewriting_is_the_reason(conformance: Conformance) -> None:
    model = models.model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": np.zeros((2, 3), np.float32)})
    model.ir.opset_imports["org.example"] = 1
    model.graph[0].domain = "org.example"
    model.graph[0].metadata_props[REASON] = "reads backwards; leave out its attribute 'direction'"
    with pytest.raises(CannotConvertError) as caught:
        conformance.convert(model, Path(conformance._folder.name, "refused.tflite"))
    assert [refusal.why for refusal in caught.value.refusals] == [model.graph[0].metadata_props[REASON]]
