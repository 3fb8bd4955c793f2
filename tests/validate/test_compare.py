"""Comparing two answers: what passes, what fails, and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxport.validate.accumulator import Tally
from onnxport.validate.comparison import Comparison, compare
from onnxport.validate.tolerance import Noise, Tolerance, group_axis, measure_noise

Array = np.ndarray[Any, np.dtype[Any]]

QUIET = Tolerance(length=1)
EPS = 2.0**-23


def noise(answer: Array, level: float = 0.0) -> Noise:
    return measure_noise(answer, [answer + np.asarray(level, answer.dtype)] if level else [])


def judged(
    reference: Array, candidate: Array, tolerance: Tolerance = QUIET, level: float = 0.0
) -> Comparison:
    return compare("y", reference, candidate, noise(reference, level), tolerance)


def reported(reference: Array, candidate: Array, tolerance: Tolerance = QUIET, doubt: str = "") -> Any:
    known = noise(reference)
    tally = Tally("y", reference.dtype.name)
    tally.add("set 1", reference, candidate, known, compare("y", reference, candidate, known, tolerance))
    return tally.report(tolerance, doubt, accept=False)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 22, 2100), 1),  # detections: boxes and class scores
        ((1, 6400, 4), 2),
        ((1, 43, 59, 4), 3),
        ((1, 1000), None),  # more entries than make groups
        ((3, 4), None),  # groups of three elements estimate nothing
        ((1, 1, 320, 320), None),
        ((5,), None),
        ((), None),
        ((2, 1, 7), None),
        ((0, 4), None),
    ],
)
def test_elements_are_grouped_along_the_smallest_axis_after_the_first(
    shape: tuple[int, ...], axis: int | None
) -> None:
    assert group_axis(shape) == axis


def test_rounding_passes_and_what_is_beyond_it_fails() -> None:
    reference = np.linspace(-1, 1, 1000, dtype=np.float32)
    assert not judged(reference, reference + np.float32(3 * EPS)).fault
    found = judged(reference, reference + np.float32(30 * EPS))
    assert found.mismatches == 1000
    assert found.fault.startswith("difference 3.6e-06 at [")


def test_longer_sums_may_round_more() -> None:
    reference = np.linspace(-1, 1, 1000, dtype=np.float32)
    candidate = reference + np.float32(30 * EPS)
    assert judged(reference, candidate, Tolerance(length=1)).fault
    assert not judged(reference, candidate, Tolerance(length=100)).fault


def test_measured_noise_widens_the_tolerance() -> None:
    reference = np.linspace(-1, 1, 1000, dtype=np.float32)
    candidate = reference + np.float32(1e-3)
    assert judged(reference, candidate, level=1e-5).fault
    assert not judged(reference, candidate, level=1e-4).fault


def test_small_scores_are_not_judged_by_the_scale_of_large_coordinates() -> None:
    reference = np.ones((1, 2, 8), np.float32)
    reference[:, 0] *= 300
    reference[:, 1] *= 1e-3
    candidate = reference.copy()
    candidate[0, 1, 3] += 1e-6  # a thousandth of the score, 3e-9 of the coordinates
    found = judged(reference, candidate)
    assert found.index == (0, 1, 3)
    assert found.mismatches == 1


def test_an_element_beyond_tolerance_is_the_worst_even_where_others_differ_more() -> None:
    reference = np.ones((1, 2, 8), np.float32) * np.array([[[1e4], [1]]], np.float32)
    candidate = reference + np.array([[[1e-3], [1e-4]]], np.float32)
    report = reported(reference, candidate)
    assert report.verdict == "not equivalent"
    assert report.worst.index[1] == 1
    assert report.max_abs == pytest.approx(1e-3, rel=0.03)
    assert report.tolerance < 1e-5


def test_saturated_sigmoids_may_be_off_by_eps_absolutely() -> None:
    reference, candidate = np.zeros((1, 8), np.float32), np.full((1, 8), 1e-8, np.float32)
    assert judged(reference, candidate).fault
    assert not judged(reference, candidate, Tolerance(1, saturating=frozenset({"y"}))).fault


def test_two_kernels_of_a_sigmoid_are_equivalent() -> None:
    """A detector's scores of 1e-7: MLAS's rational function in ONNX Runtime, and without fused multiply-add."""
    logits = np.linspace(-20, 20, 1_000_003, dtype=np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Sigmoid (x) }'
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    reference = session.run(None, {"x": logits})[0]
    tolerance = Tolerance(length=1, saturating=frozenset({"y"}))
    low = logits < -8  # where the scale allows nothing
    assert not judged(reference[low], mlas_sigmoid(logits)[low], tolerance).fault
    assert judged(reference[low], reference[low] + np.float32(1e-6), tolerance).fault


def mlas_sigmoid(logits: Array) -> Array:
    """Return 0.5 + p(x) / q(x) as MLAS defines them, in float32."""
    x = np.clip(logits, np.float32(-18), np.float32(18))
    p, q = np.zeros_like(x), np.zeros_like(x)
    for each in (
        4.37031012579801e-11,
        1.15627324459942e-07,
        6.08574864600143e-05,
        8.51377133304701e-03,
        0.248287947061529,
    ):
        p = p * (x * x) + np.float32(each)
    for each in (
        6.10247389755681e-13,
        5.76102136993427e-09,
        6.29106785017040e-06,
        1.70198817374094e-03,
        0.116817656904453,
        0.993151921023180,
    ):
        q = q * (x * x) + np.float32(each)
    return p * x / q + np.float32(0.5)


def test_numbers_times_their_sigmoid_may_be_off_by_what_onnx_runtime_cuts() -> None:
    """-18.1 / (1 + exp(18.1)) = -2.5e-7, where ONNX Runtime's answer is 0."""
    reference, exact = np.zeros((1, 8), np.float32), np.full((1, 8), -18.1 / (1 + np.exp(18.1)), np.float32)
    gated = Tolerance(1, gated=frozenset({"y"}))
    assert judged(reference, exact).fault
    assert not judged(reference, exact, gated).fault
    assert judged(reference, exact * np.float32(10), gated).fault


def test_in_float16_a_sigmoid_is_as_exact_as_float32_rounded_to_it() -> None:
    tolerance = Tolerance(1, saturating=frozenset({"y"}), precision="float16")
    reference = np.full((1, 8), 3e-6, np.float32).astype(np.float16).astype(np.float32)
    assert not judged(reference, reference + np.float32(2.0**-24), tolerance).fault
    assert judged(reference, reference + np.float32(1e-4), tolerance).fault


def test_float16_answers_may_be_off_by_their_own_last_bit() -> None:
    reference = np.full((1, 8), 1.0, np.float16)
    assert not judged(reference, np.nextafter(reference, np.float16(2))).fault
    assert judged(reference, (reference * np.float16(1.01)).astype(np.float16)).fault


def test_float64_answers_are_judged_as_float32() -> None:
    reference = np.linspace(-1, 1, 99)
    assert not judged(reference, reference.astype(np.float32).astype(np.float64)).fault


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        ([1.0, 2.0], [1.0, np.nan], "nan at [1], the reference has 2"),
        ([1.0, np.nan], [1.0, 2.0], "2.0 at [1], the reference has nan"),
        ([1.0, np.inf], [1.0, -np.inf], "-inf at [1], the reference has inf"),
        ([1.0, -np.inf], [1.0, np.finfo(np.float32).min], "-3.40"),
    ],
)
def test_nan_and_infinities_have_to_agree(reference: list[float], candidate: list[float], words: str) -> None:
    found = judged(np.array(reference, np.float32), np.array(candidate, np.float32))
    assert found.fault.startswith(words)
    assert found.mismatches == 1


def test_agreeing_nan_and_infinities_pass() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert not judged(odd, odd.copy()).fault


def test_nan_counts_for_nothing_where_the_reference_itself_is_unsure() -> None:
    reference = np.array([1.0, 2.0], np.float32)
    unsure = measure_noise(reference, [np.array([1.0, np.nan], np.float32)])
    found = compare("y", reference, np.array([1.0, np.inf], np.float32), unsure, QUIET)
    assert (found.fault, found.ignored) == ("", 1)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integers_and_booleans_are_exact(dtype: type) -> None:
    reference = np.array([0, 1, 1, 0]).astype(dtype)
    candidate = reference.copy()
    assert not judged(reference, candidate).fault
    candidate[2] = 0
    found = judged(reference, candidate)
    assert found.mismatches == 1
    assert "at [2]" in found.fault
    assert "1 of 4 elements differ" in found.fault


def test_strings_are_exact() -> None:
    reference = np.array(["a", "b"], object)
    assert not judged(reference, reference.copy()).fault
    assert judged(reference, np.array(["a", "c"], object)).fault


def test_integers_may_differ_where_the_reference_flips_under_its_own_noise_only() -> None:
    reference = np.array([3, 5, 7])
    flipping = measure_noise(reference, [np.array([3, 6, 7])])
    there = compare("y", reference, np.array([3, 9, 7]), flipping, QUIET)
    assert (there.fault, there.ignored) == ("", 1)
    assert compare("y", reference, np.array([4, 5, 7]), flipping, QUIET).fault


def test_what_the_reference_is_not_sure_of_counts_as_equal_in_the_figures() -> None:
    reference, candidate = np.array([3, 5, 7]), np.array([3, 9, 7])
    unsure = measure_noise(reference, [np.array([3, 6, 7])])
    tally = Tally("y", "int64")
    tally.add("set 1", reference, candidate, unsure, compare("y", reference, candidate, unsure, QUIET))
    report = tally.report(QUIET, "", accept=False)
    assert (report.verdict, report.max_abs) == ("proven", 0)
    assert {figure.metric: figure.value for figure in report.figures}["mismatch_share"] == 0
    assert reported(reference, candidate).max_abs == 4


def test_an_answer_whose_size_hangs_on_rounding_has_no_figures() -> None:
    reference, candidate = np.array([3.0, 5.0], np.float32), np.array([9.0, 9.0], np.float32)
    unsure = measure_noise(reference, [np.array([3.0], np.float32)])
    tally = Tally("y", "float32")
    tally.add("set 1", reference, candidate, unsure, compare("y", reference, candidate, unsure, QUIET))
    assert tally.report(QUIET, "", accept=False).figures == ()


def test_the_worst_elements_are_those_furthest_beyond_their_own_tolerance() -> None:
    reference = np.ones((1, 2, 8), np.float32) * np.array([[[1e4], [1]]], np.float32)
    candidate = reference.copy()
    candidate[0, 0, 5] += 1  # 1e-4 of its scale
    candidate[0, 1, [2, 6]] += [0.5, 0.25]
    report = reported(reference, candidate)
    assert [element.index for element in report.worst_elements] == [(0, 1, 2), (0, 1, 6), (0, 0, 5)]
    assert report.worst == report.worst_elements[0]
    assert (report.worst.reference, report.worst.candidate, report.worst.input_set) == (1, 1.5, "set 1")


def test_another_shape_is_a_fault() -> None:
    found = judged(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32))
    assert found.fault == "shape [3, 2], the reference has [2, 3]"


def test_scalars_and_empty_answers_are_compared_too() -> None:
    assert not judged(np.array(1.0, np.float32), np.array(1.0, np.float32)).fault
    assert judged(np.array(1.0, np.float32), np.array(2.0, np.float32)).fault
    assert not judged(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)).fault


def test_given_tolerances_replace_the_derived_one() -> None:
    reference, candidate = np.array([1.0, 100.0], np.float32), np.array([1.05, 100.5], np.float32)
    assert judged(reference, candidate).fault
    assert not judged(reference, candidate, Tolerance(1, rtol=0.06)).fault
    assert not judged(reference, candidate, Tolerance(1, atol=0.6)).fault
    assert judged(reference, candidate, Tolerance(1, rtol=0.01)).mismatches == 1
    assert (
        reported(reference, candidate, Tolerance(1, rtol=0.06)).rule == "within atol 0 + rtol 0.06 as given"
    )


def test_the_figures_of_a_report() -> None:
    reference = np.array([3.0, -4.0], np.float32)
    report = reported(reference, np.array([3.0, -4.1], np.float32))
    assert report.max_abs == pytest.approx(0.1, rel=1e-5)
    assert report.mean_abs == pytest.approx(0.05, rel=1e-5)
    assert report.scale == 4.0
    assert report.sqnr_db == pytest.approx(10 * np.log10(25 / 0.01), rel=1e-4)
    assert (report.mismatches, report.elements, report.shape) == (1, 2, (2,))
    assert (report.worst.index, report.worst.reference, report.worst.input_set) == ((1,), -4.0, "set 1")


def test_the_rules_in_words() -> None:
    reference = np.array([1.0, 2.0], np.float32)
    assert reported(reference, reference.copy()).rule == "exact"
    assert reported(reference, reference + np.float32(EPS)).rule == "within float32 noise"
    doubtful = reported(reference, reference.copy(), doubt="why")
    assert (doubtful.verdict, doubtful.rule) == ("inconclusive", "why")
    # A fault is a fault, whether the answers prove anything or not.
    assert reported(reference, reference + 1, doubt="why").verdict == "not equivalent"


def test_what_is_small_but_everywhere_is_beyond_low_precision_rounding() -> None:
    """Noise of one large difference in a thousand; a candidate that is off by less, but in all of them."""
    reference = np.random.default_rng(0).standard_normal((1, 1000)).astype(np.float32)
    probe = reference.copy()
    probe[0, 7] += np.float32(0.1)
    known = measure_noise(reference, [probe])
    shifted = reference + np.float32(0.05)
    low = Tolerance(1, precision="float16")
    assert compare("y", reference, probe, known, low).mismatches == 0
    found = compare("y", reference, shifted, known, low)
    assert found.mismatches == 1000
    assert found.fault.startswith("beyond float16 rounding: difference ")
    assert "on average" in found.fault
    assert compare("y", reference, shifted, known, Tolerance(1)).mismatches == 0, "float32 asks for no means"


def test_a_quantization_step_is_allowed_and_told() -> None:
    reference = np.zeros((1, 4), np.float32)
    tolerance = Tolerance(1, precision="int8", steps={"y": 0.5})
    quiet = measure_noise(reference, [reference])
    assert compare("y", reference, reference + np.float32(0.5), quiet, tolerance).mismatches == 0
    assert compare("y", reference, reference + np.float32(1.0), quiet, tolerance).mismatches == 4
    assert tolerance.describe_pass("y", "float32", 1.0, 4.0, 9.0) == (
        "2 quantization steps, ONNX Runtime against itself 8"
    )
    assert compare("y", reference, reference + np.float32(9), quiet, tolerance).fault.startswith(
        "far beyond int8"
    )
