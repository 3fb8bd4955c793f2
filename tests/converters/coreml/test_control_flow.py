"""If, Loop and Scan through Core ML: the graphs of the TFLite route's tests, and what MIL says otherwise."""

from __future__ import annotations

import pytest

from onnxport.errors import CannotConvertError
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import difference
from tests.converters.tflite.models import run_onnx
from tests.converters.tflite.test_control_flow import CASES, REFUSED, Case, model_from

# What Core ML does not hold is refused, not computed: the reason of each.
NOT_HELD = {
    "states that grow, one from nothing": "without elements",
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_HELD])
def test_control_flow_computes_what_onnx_runtime_does(coreml: CoremlConformance, name: str) -> None:
    check(coreml, CASES[name])


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
            assert not difference(value, answer[output], atol=noise), (output, feed)
