"""If, Loop and Scan through Core ML: the graphs of the TFLite route's tests, and what MIL says otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from onnxport.converters.params import CoremlParams
from onnxport.core.errors import CannotConvertError
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import difference
from tests.converters.tflite.models import run_onnx
from tests.converters.tflite.test_control_flow import CASES, REFUSED, Case, counts, model_from

# What Core ML does not hold is refused, not computed: the reason of each.
NOT_HELD = {
    "states that grow, one from nothing": "no empty tensors",
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_HELD])
def test_control_flow_computes_what_onnx_runtime_does(coreml: CoremlConformance, name: str) -> None:
    check(coreml, CASES[name])


# exp(exp(x)) is 5e8, beyond float16.
BEYOND_HALF = {"one value as two results"}


@pytest.mark.parametrize("name", sorted({*CASES} - {*NOT_HELD} - BEYOND_HALF))
def test_control_flow_carries_half_precision(coreml: CoremlConformance, name: str) -> None:
    """What loops carry and branches give is of one type, whatever copies of it there are around them."""
    before, coreml.params = coreml.params, CoremlParams(precision="fp16")
    try:
        check(coreml, CASES[name], noise=4e-3)
    finally:
        coreml.params = before


@pytest.mark.parametrize("name", NOT_HELD)
def test_what_core_ml_does_not_hold_is_refused(coreml: CoremlConformance, name: str) -> None:
    with pytest.raises(CannotConvertError) as caught:
        coreml.convert_and_run(model_from(CASES[name].graph), [])
    assert any(NOT_HELD[name] in refusal.why for refusal in caught.value.refusals)


@pytest.mark.parametrize("reason", REFUSED)
def test_what_no_loop_or_branch_can_be_is_refused_with_the_reason(
    coreml: CoremlConformance, reason: str
) -> None:
    with pytest.raises(CannotConvertError) as caught:
        coreml.convert_and_run(model_from(REFUSED[reason]), [])
    assert any(reason in refusal.why for refusal in caught.value.refusals)


# Loops of a known number of steps that TFLite's tests need not have: written out.
KNOWN = {
    "a state that grows from nothing": Case(
        """g (float[2,3] x) => (float[P,3] y, float[Q,3] z, float[N,2,3] w) <float[0,3] e = {}, int64 n = {3}> {
            y, z, w = Loop (n, , x, e) <
                body = l (int64 i, bool c, s, f) => (bool c2, float[A,3] s2, float[B,3] f2, float[2,3] w2) {
                    c2 = Identity(c)
                    s2 = Concat<axis=0>(s, x)
                    f2 = Concat<axis=0>(f, s)
                    k = Cast<to=1>(i)
                    w2 = Mul(x, k)
                }
            >
        }""",
        counts(1)[:1],
    ),
    "a state that gains dimensions": Case(
        """g (float[2,3] x) => (y) <int64 n = {3}, int64[1] first = {0}> {
            y = Loop (n, , x) <
                body = l (int64 i, bool c, s) => (bool c2, s2) {
                    c2 = Identity(c)
                    t = Neg(s)
                    s2 = Unsqueeze(t, first)
                }
            >
        }""",
        counts(1)[:1],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_loops_that_change_shapes_are_written_out(coreml: CoremlConformance, name: str) -> None:
    case = KNOWN[name]
    check(coreml, Case(case.graph, [{"x": feed["x"]} for feed in case.feeds]))
    assert "Loop" not in coreml.operators


def check(coreml: CoremlConformance, case: Case, noise: float = 1e-5) -> None:
    model = model_from(case.graph)
    expected = [run_onnx(model, dict(feed)) for feed in case.feeds]
    # Core ML holds no tensor without elements, in which a loop without steps ends.
    held = [
        (dict(feed), answer)
        for feed, answer in zip(case.feeds, expected, strict=True)
        if all(value.size for value in answer.values())
    ]
    assert held
    answers = coreml.convert_and_run(model, [feed for feed, _ in held])
    for (feed, wanted), answer in zip(held, answers, strict=True):
        for output, value in wanted.items():
            largest = max(1.0, float(np.abs(value.astype(np.float64)).max()))
            assert not difference(value, answer[output], atol=noise * largest), (output, feed)
