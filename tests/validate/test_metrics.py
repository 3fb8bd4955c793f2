"""The metrics against values that others compute: scikit-learn, SciPy, NumPy's own spacing, and by hand."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn
from sklearn.metrics.pairwise import cosine_similarity

from onnxport.formats.artifact import TensorSpec
from onnxport.validate.error_sums import worst_elements
from onnxport.validate.metrics import OutputSums, figures

Array = np.ndarray[Any, np.dtype[Any]]

RANDOM = np.random.default_rng(7)


def values(*sets: tuple[Array, Array], tie: float = 0.0) -> dict[str, float]:
    """Metric name to value, over all sets."""
    seen = OutputSums()
    for reference, candidate in sets:
        seen.add(reference, candidate, tie)
    spec = TensorSpec("y", sets[0][0].dtype.name, sets[0][0].shape)
    return {figure.metric: figure.value for figure in figures(spec, seen)}


def noisy(shape: tuple[int, ...], level: float) -> tuple[Array, Array]:
    reference = RANDOM.standard_normal(shape).astype(np.float32)
    return reference, reference + (level * RANDOM.standard_normal(shape)).astype(np.float32)


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)


def test_errors_over_several_sets_are_those_of_all_their_elements() -> None:
    sets = [noisy((3, 50_000), 1e-3), noisy((2, 7), 1e-1)]  # the first is larger than a block
    found = values(*sets)
    reference, candidate = (np.concatenate([pair[side].ravel() for pair in sets]) for side in (0, 1))
    assert found["max_abs"] == pytest.approx(sklearn.max_error(reference, candidate))
    assert found["mean_abs"] == pytest.approx(sklearn.mean_absolute_error(reference, candidate), rel=1e-5)
    assert found["max_of_scale"] == pytest.approx(found["max_abs"] / np.abs(reference).max())
    cosine = cosine_similarity([reference.astype(float)], [candidate.astype(float)])[0, 0]
    assert found["cosine"] == pytest.approx(cosine, abs=1e-12)
    squared = sklearn.mean_squared_error(reference.astype(float), candidate.astype(float))
    power = np.square(reference, dtype=float).mean()
    assert found["sqnr"] == pytest.approx(10 * np.log10(power / squared))


def test_equal_answers_have_the_best_of_every_figure() -> None:
    reference, _ = noisy((4, 10), 0)
    best = {"max_abs": 0, "mean_abs": 0, "max_of_scale": 0, "max_ulps": 0, "sqnr": math.inf}
    assert values((reference, reference.copy())) == best | {
        "cosine": pytest.approx(1),
        "top1_agreement": 1,
        "top5_agreement": 1,
    }


def test_zeros_for_an_answer_have_no_signal_left() -> None:
    found = values((np.full((2, 3), 2, np.float32), np.zeros((2, 3), np.float32)))
    assert found["sqnr"] == 0
    assert found["cosine"] == 0
    nothing = values((np.zeros((2, 3), np.float32), np.full((2, 3), 2, np.float32)))
    assert nothing["sqnr"] == -math.inf
    assert nothing["max_of_scale"] == math.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ulps_are_steps_of_the_dtype_itself(dtype: type) -> None:
    start = np.array([1.0, -3.5, 1e-3, 0.0], dtype)
    moved = start
    for _ in range(5):
        moved = np.nextafter(moved, np.asarray(np.inf, dtype))
    assert values((start, moved))["max_ulps"] == 5
    # Across a power of two the steps double: two above, four below 2.0.
    below, above = (
        np.asarray([2 - 4 * np.finfo(dtype).eps], dtype),
        np.asarray([2 + 4 * np.finfo(dtype).eps], dtype),
    )
    assert values((below, above))["max_ulps"] == 4 + 2


def test_ulps_count_what_is_finite_and_of_one_sign_only() -> None:
    reference = np.array([1.0, -1.0, np.nan, np.inf], np.float32)
    candidate = np.array([1.0, 2.0, 5.0, 3.0], np.float32)
    assert values((reference, candidate))["max_ulps"] == 0
    assert "max_ulps" not in values((np.ones(3), np.ones(3))), "float64"


def test_a_value_that_is_not_finite_on_one_side_is_an_infinite_error() -> None:
    reference = np.array([[1.0, 2.0, 3.0]], np.float32)
    found = values((reference, np.array([[1.0, np.nan, 3.0]], np.float32)))
    assert (found["max_abs"], found["sqnr"], found["cosine"]) == (math.inf, -math.inf, 0)
    odd = np.array([np.nan, np.inf, -np.inf, 2.0], np.float32)
    assert values((odd, odd.copy()))["sqnr"] == math.inf


def test_what_is_not_finite_is_counted_on_both_sides() -> None:
    seen = OutputSums()
    reference = np.array([np.nan, np.nan, np.inf, np.inf, 1, 2], np.float32)
    candidate = np.array([np.nan, 1, np.inf, -np.inf, np.nan, 2], np.float32)
    seen.add(reference, candidate, 0.0)
    found = seen.sums.nonfinite
    assert found is not None
    counts = found.reference_nan, found.candidate_nan, found.reference_infinite, found.candidate_infinite
    assert counts == (2, 2, 2, 2)
    assert found.differing == 3
    assert (seen.sums.largest, seen.sums.scale) == (0, 2)


def test_top_agreement_is_what_scikit_learn_says_of_the_references_choices() -> None:
    reference = RANDOM.standard_normal((4000, 12)).astype(np.float32)
    candidate = reference + RANDOM.standard_normal(reference.shape).astype(np.float32)
    found = values((reference[:1000], candidate[:1000]), (reference[1000:], candidate[1000:]))
    chosen = reference.argmax(axis=1)
    labels = np.arange(12)
    assert found["top1_agreement"] == sklearn.accuracy_score(chosen, candidate.argmax(axis=1))
    assert found["top5_agreement"] == sklearn.top_k_accuracy_score(chosen, candidate, k=5, labels=labels)
    assert 0.3 < found["top1_agreement"] < found["top5_agreement"] < 1


def test_choices_that_rounding_decides_agree() -> None:
    reference = np.array([[1.0, 1.0 - 1e-6, 0.0], [1.0, 0.5, 0.0]], np.float32)
    candidate = np.array([[1.0 - 1e-6, 1.0, 0.0], [0.5, 1.0, 0.0]], np.float32)
    assert values((reference, candidate))["top1_agreement"] == 0
    assert values((reference, candidate), tie=1e-5)["top1_agreement"] == 0.5


def test_a_choice_among_equals_is_among_the_best_five() -> None:
    reference = np.arange(8, dtype=np.float32)[None]
    level = np.zeros((1, 8), np.float32)
    assert values((reference, level))["top5_agreement"] == 1
    assert values((reference, -reference))["top5_agreement"] == 0


def test_nan_scores_agree_with_nothing() -> None:
    reference = np.array([[1.0, 2, 3, 4, 5, 6]], np.float32)
    found = values((reference, np.full_like(reference, np.nan)))
    assert (found["top1_agreement"], found["top5_agreement"]) == (0, 0)


def test_class_scores_are_rows_of_a_matrix_or_what_a_softmax_gives() -> None:
    logits = RANDOM.standard_normal((2, 5, 7)).astype(np.float32)
    assert "top1_agreement" in values((softmax(logits), softmax(logits)))
    assert "top1_agreement" not in values((logits, logits))
    assert "top1_agreement" in values((logits[0], logits[0]))
    assert "top1_agreement" not in values((logits[0, :, :1], logits[0, :, :1]))
    assert "top5_agreement" not in values((logits[0, :, :5], logits[0, :, :5])), "always 1"


def test_class_scores_have_to_look_so_in_every_set() -> None:
    first = softmax(RANDOM.standard_normal((1, 3, 4)))
    assert "top1_agreement" not in values((first, first), (2 * first, 2 * first))


def test_mean_iou_of_labels_is_scikit_learns_macro_jaccard() -> None:
    reference = RANDOM.integers(0, 21, (2, 64, 40))
    candidate = np.where(
        RANDOM.random(reference.shape) < 0.8, reference, RANDOM.integers(0, 23, reference.shape)
    )
    found = values((reference[:1], candidate[:1]), (reference[1:], candidate[1:]))
    expected = sklearn.jaccard_score(reference.ravel(), candidate.ravel(), average="macro", zero_division=0)
    assert found["mean_iou"] == pytest.approx(expected)
    assert found["mismatch_share"] == pytest.approx(
        sklearn.zero_one_loss(reference.ravel(), candidate.ravel())
    )


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float32])
def test_mean_iou_of_two_classes_is_scikit_learns_too(dtype: type) -> None:
    reference = RANDOM.random((1, 1, 48, 32))
    candidate = np.clip(reference + 0.2 * RANDOM.standard_normal(reference.shape), 0, 1)
    halves = reference >= 0.5, candidate >= 0.5
    given = (reference, candidate) if dtype is np.float32 else halves
    found = values((given[0].astype(dtype), given[1].astype(dtype)))
    expected = sklearn.jaccard_score(halves[0].ravel(), halves[1].ravel(), average="macro")
    assert found["mean_iou"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "output",
    [
        np.zeros((1, 3, 224), np.float32),  # no two sides of an image
        np.zeros((48, 32), bool),  # two axes
        np.full((1, 1, 48, 32), 1.1, np.float32),
        np.full((1, 48, 32), -1, np.int64),
        np.full((1, 48, 32), 256, np.int64),
        np.full((1, 48, 32), 1 / 32, np.float32),  # class scores
    ],
    ids=["signal", "matrix", "beyond 1", "negative", "no label", "scores"],
)
def test_what_is_no_mask_has_no_iou(output: Array) -> None:
    assert "mean_iou" not in values((output, output))


def test_integers_have_errors_and_a_share_of_mismatches() -> None:
    found = values((np.array([1, 5, 7, 9]), np.array([1, 5, 3, 9])))
    assert found == {"max_abs": 4, "mean_abs": 1, "mismatch_share": 0.25}
    words = np.array(["a", "b"], object), np.array(["a", "c"], object)
    seen = OutputSums()
    seen.add(*words, 0.0)
    assert [(f.metric, f.value) for f in figures(TensorSpec("y", "string", (2,)), seen)] == [
        ("mismatch_share", 0.5)
    ]


def test_another_shape_adds_nothing() -> None:
    assert values((np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))) == {}


def test_no_elements_have_no_figures() -> None:
    empty = np.zeros((0, 4), np.float32)
    assert values((empty, empty)) == {}


def test_histogram_counts_every_element_in_its_decade() -> None:
    differences = np.repeat([0, 3e-12, 2e-7, 5e-7, 3e-3, 40.0], [5, 4, 3, 2, 1, 6])
    reference = np.zeros(differences.size + 1)
    reference[-1] = 2.0  # the scale
    seen = OutputSums()
    seen.add(reference, reference + np.append(2 * differences, 0), 0.0)
    found = seen.sums.histogram(2.0, 2e-6)
    assert found is not None
    decades = dict(zip(found.edges, found.counts, strict=False))
    assert {edge: count for edge, count in decades.items() if count} == {-10: 4, -7: 5, -3: 1, 0: 6}
    assert found.equal == 6
    assert found.allowed == pytest.approx(-6)
    assert len(found.edges) == len(found.counts) + 1


def test_histogram_is_sure_of_what_is_further_than_3_percent_from_a_border() -> None:
    edges = 10.0 ** np.arange(-9, 1)
    differences = np.append(edges * 0.965, edges * 1.035)
    reference = np.zeros(differences.size + 1)
    reference[-1] = 1.0
    seen = OutputSums()
    seen.add(reference, reference + np.append(differences, 0), 0.0)
    found = seen.sums.histogram(1.0, 0.0)
    assert found is not None
    assert found.counts == (1, *[2] * 9, 1)


def test_the_furthest_elements_come_first_wherever_they_lie() -> None:
    ratios = RANDOM.random((3, 7, 50_001))
    top = np.argsort(-ratios, axis=None)[:5]
    expected = [(ratios.ravel()[place], np.unravel_index(place, ratios.shape)) for place in top]
    assert worst_elements(ratios, 5) == expected
    assert worst_elements(np.array([0.0, np.inf, 2.0, np.inf]), 5) == [
        (np.inf, (1,)),
        (np.inf, (3,)),
        (2.0, (2,)),
    ]
    assert worst_elements(np.zeros(4), 5) == []
    assert worst_elements(np.zeros((0, 4)), 5) == []
    assert worst_elements(np.array(3.0), 5) == [(3.0, ())]


def test_figures_need_no_memory_worth_a_copy_of_the_output() -> None:
    reference, candidate = noisy((1, 2_000_000), 1e-6)
    tracemalloc.start()
    try:
        OutputSums().add(reference, candidate, 0.0)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * reference.nbytes
    finally:
        tracemalloc.stop()
