"""How far a float32 candidate may be from ONNX Runtime: derived from what ONNX Runtime differs from itself.

For every group of elements of one output in one set of inputs

    allowed = NOISE_FACTOR * noise + ROUNDING_FACTOR * eps32 * sqrt(length) * scale + eps * (scale + floor)

noise: the largest difference, over the group, between ONNX Runtime's answer and its answers when only rounding
    differs (graph optimization off; every other input value moved to a neighbouring float).
eps32: the spacing of float32 at 1, 1.2e-7: what sums are rounded to. eps: that of the output's own dtype (float16
    9.8e-4), in which the result is stored.
length: the longest sum of products in the network. A sum of n rounded terms is off by about eps * sqrt(n) of its
    terms' magnitude when rounding errors are independent (N. Higham, Accuracy and Stability of Numerical
    Algorithms, 2.8 and 4.2).
scale: the largest magnitude in the group.
floor: 1 for an output that a Sigmoid or HardSigmoid gives. ONNX Runtime computes them around their middle, and what
    they give near 0 is exact to eps absolutely, not relatively (MLAS cuts Sigmoid to 0 below -18). Else 0.

A group is one entry along the smallest axis after the first, so that class scores are not judged by the scale of
box coordinates that share a tensor with them. The constants and the measurements behind them: docs/tolerances.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

NOISE_FACTOR = 16.0
ROUNDING_FACTOR = 6.0

# An output whose noise exceeds this share of its scale shows nothing.
CONCLUSIVE_NOISE = 0.01

_MOST_GROUPS = 256
_SMALLEST_GROUP = 4

_EPS32 = 2.0**-23
# The artefacts that this verdict is about hold float64 models in float32.
_EPS = {"float16": 2.0**-10, "float32": _EPS32, "float64": _EPS32}


@dataclass(frozen=True)
class Noise:
    """What the reference's answer to one set of inputs is sure of.

    Attributes:
        groups: float64[group], the largest difference between the answer and its probes.
        unstable: bool[shape], elements that a probe turned into another integer or into or out of NaN or an infinity;
            None for none.
        reshaped: a probe gave another shape: the answer's size itself hangs on rounding.
    """

    groups: Array
    unstable: Array | None
    reshaped: bool = False

    @property
    def largest(self) -> float:
        return float(self.groups.max(initial=0.0))


@dataclass(frozen=True)
class Tolerance:
    """What decides: the derived tolerance, or the user's `rtol` and `atol` where one of them is given.

    Attributes:
        length: the longest sum of products in the network.
        saturating: the outputs whose floor is 1.
    """

    length: int
    saturating: frozenset[str] = frozenset()
    rtol: float | None = None
    atol: float | None = None

    @property
    def is_given(self) -> bool:
        return self.rtol is not None or self.atol is not None

    def allowed(self, name: str, reference: Array, noise: Noise) -> Array:
        """The absolute difference allowed per element of the output `name`: float64, broadcasts to `reference`."""
        if self.is_given:
            return np.asarray((self.atol or 0.0) + (self.rtol or 0.0) * np.abs(reference.astype(np.float64)))
        return self.derived(name, reference, noise)

    def derived(self, name: str, reference: Array, noise: Noise) -> Array:
        """As `allowed`, whatever the user gave."""
        eps = _EPS[reference.dtype.name]
        per_scale = ROUNDING_FACTOR * _EPS32 * math.sqrt(self.length) + eps
        floor = eps if name in self.saturating else 0.0
        groups = NOISE_FACTOR * noise.groups + per_scale * group_scales(reference) + floor
        return spread(groups, reference.shape)


def group_axis(shape: Sequence[int]) -> int | None:
    """The axis along which elements are grouped: the smallest after the first that has more than one entry.

    None, the whole output is one group, when that axis is long or leaves a group of too few elements for their
    noise to be an estimate.
    """
    axes = [axis for axis in range(1, len(shape)) if shape[axis] > 1]
    if not axes:
        return None
    axis = min(axes, key=lambda axis: shape[axis])
    fits = shape[axis] <= _MOST_GROUPS and math.prod(shape) >= _SMALLEST_GROUP * shape[axis]
    return axis if fits else None


def group_maxima(values: Array) -> Array:
    """The largest value of each group, float64[groups]."""
    axis = group_axis(values.shape)
    if axis is None:
        return np.array([values.max(initial=0.0)])
    others = tuple(i for i in range(values.ndim) if i != axis)
    maxima: Array = values.max(axis=others, initial=0.0)
    return maxima


def spread(groups: Array, shape: Sequence[int]) -> Array:
    """Per-group values as an array that broadcasts to `shape`."""
    axis = group_axis(shape)
    if axis is None:
        return groups.reshape((1,) * len(shape))
    return groups.reshape(tuple(-1 if i == axis else 1 for i in range(len(shape))))


def group_scales(reference: Array) -> Array:
    """The largest finite magnitude of each group, float64[groups]."""
    return group_maxima(np.where(np.isfinite(reference), np.abs(reference), 0.0))


def measure_noise(reference: Array, probes: Iterable[Array]) -> Noise:
    """The noise of the answer `reference`, from the answers of runs that differ from it by rounding alone."""
    unstable = np.zeros(reference.shape, bool)
    differences = np.zeros(reference.shape)
    for probe in probes:
        if probe.shape != reference.shape:
            return Noise(np.array([np.inf]), None, reshaped=True)
        if reference.dtype.kind in "fc":
            differing, difference = float_differences(reference, probe)
            unstable |= differing
            np.maximum(differences, difference, out=differences)
        else:
            unstable |= reference != probe
    return Noise(group_maxima(differences), unstable if unstable.any() else None)


def float_differences(reference: Array, other: Array) -> tuple[Array, Array]:
    """Where one side is NaN or infinite and the other is not the same, and |other - reference| where both are finite.

    Returns:
        bool[shape], float64[shape] (0 where not both are finite).
    """
    finite = np.isfinite(reference) & np.isfinite(other)
    same = (reference == other) | (np.isnan(reference) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        difference = np.abs(other.astype(np.float64) - reference.astype(np.float64))
    return ~finite & ~same, np.where(finite, difference, 0.0)
