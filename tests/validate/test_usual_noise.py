"""A companion's noise is at least that of ordinary inputs."""

from __future__ import annotations

import numpy as np

from onnxport.validate.noise_runs import UsualNoise
from onnxport.validate.tolerance import Noise

ANSWER = np.array([[1.0, -2.0, 4.0]], np.float32)


def noise(largest: float) -> Noise:
    return Noise(np.array([largest]), None)


def test_the_largest_usual_share_of_the_scale_is_the_least_times_four() -> None:
    usual = UsualNoise()
    usual.add("y", ANSWER, noise(4e-6))
    usual.add("y", ANSWER * 10, noise(4e-6))
    usual.add("z", ANSWER, noise(1.0))
    np.testing.assert_allclose(usual.at_least("y", ANSWER / 2, noise(0)).groups, [4 * 1e-6 * 2])
    np.testing.assert_allclose(usual.at_least("y", ANSWER / 2, noise(1.0)).groups, [1.0])
    # Ordinary noise beyond 1 % proves nothing, and allows companions no more than that.
    np.testing.assert_allclose(usual.at_least("z", ANSWER, noise(0)).groups, [4 * 0.01 * 4])


def test_integers_and_unknown_outputs_stay_as_measured() -> None:
    usual = UsualNoise()
    usual.add("n", np.array([1, 2]), noise(1.0))
    assert usual.at_least("n", np.array([1, 2]), noise(0)).largest == 0
    assert usual.at_least("y", ANSWER, noise(0)).largest == 0


def test_the_last_bits_of_a_sigmoid_are_no_share_of_its_scale() -> None:
    """1.2e-7 is 40 % of a silent answer, and says nothing of larger ones but that these bits differ there, too."""
    usual, silent = UsualNoise(), np.full((1, 3), 3e-7, np.float32)
    usual.add("y", silent, noise(1.2e-7), floor=2.0**-23)
    np.testing.assert_allclose(usual.at_least("y", ANSWER, noise(0)).groups, [4 * 1.2e-7])
    usual.add("y", silent, noise(1.2e-7))
    assert usual.at_least("y", ANSWER, noise(0)).largest > 0.1
