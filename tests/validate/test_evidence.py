"""What the reference's answers prove."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.validate.evidence import Evidence
from onnxport.validate.tolerance import Tolerance, measure_noise

Array = np.ndarray[Any, np.dtype[Any]]
TOLERANCE = Tolerance(length=100)


def doubt(*answers: Array, level: float = 0.0) -> str:
    """The doubt that is left after these answers, each with that much noise."""
    evidence = Evidence()
    for answer in answers:
        probes = [answer + np.asarray(level, answer.dtype)] if level else []
        evidence.add("y", answer, measure_noise(answer, probes), TOLERANCE)
    return evidence.doubt()


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_answers_that_move_beyond_noise_prove() -> None:
    assert doubt(floats(0, 1, 5), floats(1, 1, 5)) == ""


def test_an_answer_of_nan_hides_no_move() -> None:
    """A float16 network that overflows on its first inputs, pictures of 0 to 255."""
    nothing = np.full((1, 5), np.nan, np.float32)
    assert doubt(nothing, floats(0, 1, 5), floats(1, 1, 5)) == ""
    assert doubt(nothing, floats(0, 1, 5), floats(0, 1, 5)) == "it does not vary with the inputs"
    assert doubt(nothing, nothing) == "it is NaN everywhere"


def test_an_output_that_no_input_moves_proves_nothing() -> None:
    same = floats(0, 1, 5)
    assert doubt(same, same.copy(), same.copy()) == "it does not vary with the inputs"
    assert doubt(same, same * np.float32(1 + 1e-6)) == "it does not vary with the inputs"
    assert doubt(np.array([4]), np.array([4])) == "it does not vary with the inputs"
    assert doubt(np.zeros((1, 5), np.float32), np.zeros((1, 5), np.float32))


def test_an_output_that_noise_drowns_proves_nothing() -> None:
    words = doubt(floats(0, 1, 5), floats(1, 1, 5), level=0.1)
    assert words.startswith("the reference's own noise is ")
    assert words.endswith("% of the output's scale")


def test_the_rounding_that_long_sums_may_have_is_no_noise_that_was_seen() -> None:
    evidence = Evidence()
    for seed in (0, 1):
        answer = floats(seed, 1, 50)
        evidence.add("y", answer, measure_noise(answer, []), Tolerance(length=1_000_000))
    assert evidence.doubt() == ""


def test_one_set_without_much_noise_is_enough() -> None:
    evidence = Evidence()
    for seed, level in ((0, 0.1), (1, 1e-5), (2, 0.1)):
        answer = floats(seed, 1, 50)
        noise = measure_noise(answer, [answer + np.float32(level)])
        evidence.add("y", answer, noise, TOLERANCE)
    assert evidence.doubt() == ""


def test_sets_of_different_sizes_prove_when_their_own_elements_differ() -> None:
    assert doubt(floats(0, 1, 5), floats(1, 3, 5)) == ""
    assert "no two sets of inputs have the same size" in doubt(
        np.ones((1, 5), np.float32), np.ones((3, 5), np.float32)
    )


def doubt_of_sizes(*sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    """The doubt that is left after answers of ones, each with the shape of its input."""
    evidence = Evidence()
    for given, answered in sizes:
        answer = np.ones(answered, np.float32)
        evidence.add("y", answer, measure_noise(answer, []), TOLERANCE, shapes={"x": given})
    return evidence.doubt()


def test_answers_of_two_sizes_to_inputs_of_one_size_prove() -> None:
    """NonZero of ones: the positions are the same, their number is not."""
    assert doubt_of_sizes(((1, 5), (3,)), ((1, 5), (4,))) == ""


def test_answers_whose_sizes_follow_from_the_inputs_sizes_prove_nothing() -> None:
    assert doubt_of_sizes(((1, 5), (5,)), ((1, 6), (6,)))


def test_integers_booleans_and_strings_have_to_vary_too() -> None:
    assert doubt(np.array([4]), np.array([5])) == ""
    assert doubt(np.array([True]), np.array([False])) == ""
    assert doubt(np.array(["a"], object), np.array(["b"], object)) == ""


def test_an_answer_whose_size_hangs_on_rounding_proves_nothing() -> None:
    evidence = Evidence()
    answer = floats(0, 7, 4)
    evidence.add("y", answer, measure_noise(answer, [floats(0, 8, 4)]), TOLERANCE)
    assert "its size changes with rounding" in evidence.doubt()
    assert "it is empty" in doubt(floats(0, 0, 4), floats(1, 0, 4))


def test_noise_in_the_first_answer_does_not_pass_for_a_move() -> None:
    evidence = Evidence()
    answer = floats(0, 1, 50)
    for level, noise in ((0.01, 0.01), (0.0, 0.0), (0.0, 0.0)):
        shifted = answer + np.float32(level)
        known = measure_noise(shifted, [shifted + np.float32(noise)])
        evidence.add("y", shifted, known, TOLERANCE)
    assert evidence.doubt() == "it does not vary with the inputs"
