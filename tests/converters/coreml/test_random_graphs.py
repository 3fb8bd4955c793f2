"""Random DAGs over the supported operators, shapes and element types: right or refused, and nothing takes us down."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, seed, settings

from onnxport.core.errors import CannotConvertError
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import difference
from tests.converters.tflite.graphs import Graph, graphs
from tests.converters.tflite.models import run_onnx
from tests.converters.tflite.test_random_graphs import _allowed, options


@options(20)
@given(graph=graphs())
def test_a_sample_of_random_graphs_is_right_or_refused(coreml: CoremlConformance, graph: Graph) -> None:
    assert verdict(coreml, graph) in ("right", "refused", "not of ONNX Runtime")


@pytest.mark.exhaustive
def test_random_graphs_are_right_or_refused(coreml: CoremlConformance) -> None:
    verdicts: Counter[str] = Counter()

    @seed(1)
    @settings(options(200), derandomize=False)
    @given(graph=graphs())
    def run(graph: Graph) -> None:
        verdicts[verdict(coreml, graph)] += 1

    run()
    assert set(verdicts) <= {"right", "refused", "not of ONNX Runtime"}, verdicts
    assert verdicts["right"] >= 120, verdicts


def verdict(coreml: CoremlConformance, graph: Graph) -> str:
    """ "right", "refused", "not of ONNX Runtime" where that does not take the graph either, or the fault."""
    try:
        expected = run_onnx(graph.model, graph.feeds)
    except Exception:
        return "not of ONNX Runtime"
    try:
        (answer,) = coreml.convert_and_run(graph.model, [graph.feeds])
    except CannotConvertError:
        return "refused"
    faults = (
        (name, difference(value, answer[name], atol=_allowed(value))) for name, value in expected.items()
    )
    return next((f"{name}: {fault}" for name, fault in faults if fault), "right")
