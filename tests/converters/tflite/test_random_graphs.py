"""Random DAGs over the supported operators, shapes and element types: right or refused, and nothing takes us down."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from onnxport.core.errors import CannotConvertError
from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.graphs import Graph, graphs
from tests.converters.tflite.models import run_onnx

# Of a float's scale: a chain of ten nodes adds up what each may round.
NOISE = 1e-4


def options(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@options(20)
@given(graph=graphs())
def test_a_sample_of_random_graphs_is_right_or_refused(conformance: Conformance, graph: Graph) -> None:
    assert verdict(conformance, graph) in ("right", "refused", "not of ONNX Runtime")


@pytest.mark.exhaustive
def test_random_graphs_are_right_or_refused(conformance: Conformance) -> None:
    verdicts: Counter[str] = Counter()

    @seed(1)
    @settings(options(200), derandomize=False)
    @given(graph=graphs())
    def run(graph: Graph) -> None:
        verdicts[verdict(conformance, graph)] += 1

    run()
    assert verdicts["right"] >= 120, verdicts


def verdict(conformance: Conformance, graph: Graph) -> str:
    """ "right", "refused", "not of ONNX Runtime" where that does not take the graph either, or the fault."""
    try:
        expected = run_onnx(graph.model, graph.feeds)
    except Exception:
        return "not of ONNX Runtime"
    try:
        (answer,) = conformance.convert_and_run(graph.model, [graph.feeds])
    except CannotConvertError:
        return "refused"
    faults = (
        (name, difference(value, answer[name], atol=_allowed(value))) for name, value in expected.items()
    )
    return next((f"{name}: {fault}" for name, fault in faults if fault), "right")


def _allowed(value: Array) -> float:
    if value.dtype.kind != "f":
        return 0.0
    noise = NOISE if value.dtype == np.float32 else 1e-2
    finite = np.abs(value[np.isfinite(value)].astype(np.float64))
    return noise * float(max(1.0, finite.max(initial=0.0)))
