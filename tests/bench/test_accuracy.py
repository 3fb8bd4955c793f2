"""The SQNR of the worst floating-point output."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxport.bench.accuracy import Comparison, Outputs, uncalibrated_notes
from onnxport.bench.report import Accuracy, Row, Settings

ONES = np.ones((2, 4), np.float32)


def worst_sqnr(reference: str, *sets: tuple[Outputs, Outputs]) -> Accuracy | None:
    comparison = Comparison()
    for expected, found in sets:
        comparison.add(expected, found)
    return comparison.worst(reference)


def test_the_worst_output_is_reported() -> None:
    expected = {"near": ONES, "far": 2 * ONES, "label": np.array([3])}
    given = {"near": ONES * np.float32(1.001), "far": ONES * np.float32(2.2), "label": np.array([4])}
    found = worst_sqnr("m.onnx", (expected, given))
    assert found is not None
    assert (found.output, found.reference) == ("far", "m.onnx")
    assert found.sqnr == pytest.approx(20.0, abs=1e-3)  # an error of a tenth


def test_errors_of_all_sets_count_and_their_number_is_said() -> None:
    exact, wrong = ({"y": ONES}, {"y": ONES}), ({"y": ONES}, {"y": ONES * np.float32(1.1)})
    found = worst_sqnr("m.onnx", exact, wrong)
    assert found is not None
    assert found.sets == 2
    assert found.sqnr == pytest.approx(23.01, abs=0.01)  # 10 log10(2 / 0.01): twice the signal of one set


def test_the_same_answers_are_infinitely_near_and_nan_infinitely_far() -> None:
    same, broken = (
        worst_sqnr("m", ({"y": ONES}, {"y": ONES})),
        worst_sqnr("m", ({"y": ONES}, {"y": ONES * np.nan})),
    )
    assert same is not None
    assert same.sqnr == math.inf
    assert broken is not None
    assert broken.sqnr == -math.inf


@pytest.mark.parametrize(
    "given", [{"z": ONES}, {"y": ONES[:1]}, {}], ids=["another name", "another shape", "nothing"]
)
def test_what_does_not_compare_has_no_figure(given: dict[str, np.ndarray]) -> None:
    assert worst_sqnr("m", ({"y": ONES}, given)) is None


def test_answers_in_half_precision_are_compared_as_the_reference_has_them() -> None:
    found = worst_sqnr("m", ({"y": ONES}, {"y": ONES.astype(np.float16)}))
    assert found is not None
    assert found.sqnr == math.inf


@pytest.mark.parametrize(
    ("precision", "sqnr", "is_said"), [("int8", 0.0, True), ("int8", 42.0, False), ("float16", 0.0, False)]
)
def test_generated_inputs_are_said_to_wrong_a_quantized_model(
    precision: str, sqnr: float, is_said: bool
) -> None:
    row = Row(
        artifact="q.onnx",
        format="onnx",
        status="measured",
        settings=Settings(runtime="ort"),
        precision=precision,
        size=1,
        compressed=1,
        accuracy=Accuracy(reference="model.onnx", sqnr=sqnr, output="y"),
    )
    assert any("--inputs DIR" in said for said in uncalibrated_notes([row])) == is_said
