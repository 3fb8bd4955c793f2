"""The tolerance: how far a candidate may be from the reference, derived from the reference's own noise.

For every group of elements of one output in one set of inputs

    allowed = min(factor * noise, CEILING * scale) + ROUNDING_FACTOR * eps32 * sqrt(length) * scale + eps * scale
              + floor + step

noise: the largest difference, over the group, between ONNX Runtime's answer and its answers when only rounding
    differs (graph optimization off; every other input value moved to a neighbouring float).
factor: 16 for float32, less for precisions whose noise consists of many large roundings (RULES).
eps32: the spacing of float32 at 1, 1.2e-7, to which sums are rounded. eps: the spacing of the stored result, by the
    output's own dtype and the artefact's precision (float16 9.8e-4).
length: the longest sum of products in the network. A sum of n rounded terms is off by about eps * sqrt(n) of its
    terms' magnitude when rounding errors are independent (N. Higham, Accuracy and Stability of Numerical
    Algorithms, 2.8 and 4.2).
    In the companions of constant inputs the errors do not cancel: eps32 * length / 2 instead, up to 0.1 %.
scale: the largest magnitude in the group; of trees' votes in the output, since one class is 1 minus the others.
floor: 4 eps32 of an output that a Sigmoid or HardSigmoid gives, else 0. ONNX Runtime computes them around their
    middle, so near 0 they are exact to 1.8 eps32 absolutely, not relatively (MLAS cuts Sigmoid to 0 below -18), and two
    answers to twice that. In a float16 model it computes them in float32 as well: the same, and float16's spacing near
    0. Of x * Sigmoid(x), 18 times eps32: below -18 it is 0 in ONNX Runtime. Of an output whose last step adds a
    constant c: at least eps32 * |c|.
step: one quantization step of an output that is de-quantized last, else 0.
CEILING: the largest share of the scale by which noise widens a tolerance (Rule.ceiling). A larger difference that the
    noise would allow is no fault and proves nothing: the output is inconclusive.

At the lower precisions the root mean square of the differences has a tolerance too, which finds differences that are
small but everywhere; float32 does not need it.

A group is one entry along the smallest axis after the first, so that the scale of box coordinates does not apply to
class scores in the same tensor. The constants and the measurements behind them: docs/reference/tolerances.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.report import Precision

NOISE_FACTOR = 16.0
ROUNDING_FACTOR = 6.0

# An output whose noise exceeds this share of its scale proves nothing.
CONCLUSIVE_NOISE = 0.01

_MOST_GROUPS = 256
_SMALLEST_GROUP = 4
# Times the tolerance: no rounding goes so far.
_FAR = 10.0

_EPS32 = 2.0**-23
# A sum of n equal terms, added one by one, is off by up to n * eps / 2 of its value (N. Higham, 4.2). The largest share
# of the value that a companion is allowed for that: kernels add long sums in parts, whose errors are smaller.
_MOST_OF_EQUAL_TERMS = 1e-3
# Artefacts hold float64 models in float32.
_EPS = {"float16": 2.0**-10, "float32": _EPS32, "float64": _EPS32}

# The fewest elements for a mean.
_LEAST_FOR_MEAN = 32


@dataclass(frozen=True)
class Rule:
    """The tolerance for the roundings of one precision.

    Attributes:
        factor: times the largest noise.
        mean_factor: times the noise's root mean square over a group; None for no such tolerance.
        eps: the relative spacing of the numbers that results are rounded to.
        floor: the absolute error of a Sigmoid near 0.
        conclusive: the largest conclusive noise, as a share of the signal.
        ceiling: the largest share of the signal that noise adds to the tolerance.
        name: the roundings' name in reports.
    """

    factor: float
    mean_factor: float | None
    eps: float
    floor: float
    conclusive: float
    ceiling: float
    name: str


# MLAS evaluates a Sigmoid as 0.5 + p(x) / q(x). Over all of [-18, 18] that is off by up to 1.46 eps with fused
# multiply-add and 1.81 without, and both answers of a comparison may be.
_SIGMOID = 4 * _EPS32
# Our runtimes compute a Sigmoid in float32 and round the result: near 0, in float16, to a multiple of 2^-24.
_FLOOR16 = _SIGMOID + 2.0**-24
_FLOAT32 = Rule(NOISE_FACTOR, None, _EPS32, _SIGMOID, CONCLUSIVE_NOISE, 0.25, "float32 noise")
# MLAS cuts a Sigmoid to 0 below -18: the error of its floor, times the largest number that it is multiplied by.
_CUT = 18.0
# The precisions that round more than float32 does.
RULES: dict[Precision, Rule] = {
    "float16": Rule(8.0, 6.0, 2.0**-10, _FLOOR16, 0.1, 0.25, "float16 rounding"),
    "bfloat16": Rule(8.0, 6.0, 2.0**-7, _SIGMOID, 0.1, 0.25, "bfloat16 rounding"),
    "float16 weights": Rule(8.0, 6.0, _EPS32, _SIGMOID, 0.1, 0.25, "float16 rounding of weights"),
    "bfloat16 weights": Rule(8.0, 6.0, _EPS32, _SIGMOID, 0.1, 0.25, "bfloat16 rounding of weights"),
    "int8": Rule(4.0, 3.0, 2.0**-8, 2.0**-8, 0.1, 0.25, "int8 rounding"),
    "int8 dynamic": Rule(4.0, 3.0, 2.0**-8, 2.0**-8, 0.1, 0.25, "int8 rounding"),
    "int16x8": Rule(4.0, 3.0, 2.0**-16, 2.0**-16, 0.1, 0.25, "int16 rounding"),
    "mixed": Rule(4.0, 3.0, 2.0**-8, 2.0**-8, 0.1, 0.25, "rounding"),
}


@dataclass(frozen=True)
class Noise:
    """The noise of the reference's answer to one set of inputs.

    Attributes:
        groups: float64[group], the largest difference between the answer and its probes.
        unstable: bool[shape], elements that a probe changed to another integer, or to or from NaN or an infinity; None
            for none.
        reshaped: a probe gave another shape: the answer's size itself depends on rounding.
        rms: float64, per group with axes kept, the largest root mean square difference of any probe; None for answers
            of few elements.
    """

    groups: Array
    unstable: Array | None
    reshaped: bool = False
    rms: Array | None = None

    @property
    def largest(self) -> float:
        return float(self.groups.max(initial=0.0))

    def combine(self, other: Noise, weight: float) -> Noise:
        """Return this noise, but at least `weight` times `other`, of an answer of the same shape."""
        if self.reshaped or other.reshaped:
            return self if self.reshaped else other
        unstable = self.unstable if other.unstable is None else other.unstable
        if self.unstable is not None and other.unstable is not None:
            unstable = self.unstable | other.unstable
        rms = None
        if self.rms is not None and other.rms is not None:
            rms = np.maximum(self.rms, weight * other.rms)
        return Noise(np.maximum(self.groups, weight * other.groups), unstable, rms=rms)


@dataclass(frozen=True)
class Tolerance:
    """The derived tolerance, or the user's `rtol` and `atol` where one of them is given.

    Attributes:
        length: the longest sum of products in the network.
        saturating: the outputs that have the floor of a Sigmoid.
        gated: those that have the floor of a number times its own Sigmoid.
        added: output name to the number that its last step adds to all elements: the sum is exact to eps32 of that.
        voted: those whose groups are shares of one whole, so that the largest magnitude of all is the scale of each.
        precision: to which the reference rounds in the comparison.
        are_terms_equal: whether the inputs are constant, so that the errors of a sum add up instead of cancelling.
        steps: output name to the size of its quantization step.
    """

    length: int
    saturating: frozenset[str] = frozenset()
    gated: frozenset[str] = frozenset()
    voted: frozenset[str] = frozenset()
    added: Mapping[str, float] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    precision: Precision = "float32"
    steps: Mapping[str, float] = field(default_factory=dict)
    are_terms_equal: bool = False

    @property
    def rule(self) -> Rule:
        return RULES.get(self.precision, _FLOAT32)

    @property
    def is_given(self) -> bool:
        return self.rtol is not None or self.atol is not None

    def allowed(self, name: str, reference: Array, noise: Noise) -> Array:
        """Return the absolute difference allowed per element of an output: float64, broadcasts to `reference`."""
        if self.is_given:
            return np.asarray((self.atol or 0.0) + (self.rtol or 0.0) * np.abs(reference.astype(np.float64)))
        return self.derived(name, reference, noise)

    def derived(self, name: str, reference: Array, noise: Noise) -> Array:
        """Return the derived tolerance, whatever the user gave; see `allowed`."""
        return self._widened(name, reference, noise, self.rule.ceiling)

    def without_ceiling(self, name: str, reference: Array, noise: Noise) -> Array:
        """Return `allowed` without the ceiling on noise; the user's tolerance has none."""
        if self.is_given:
            return self.allowed(name, reference, noise)
        return self._widened(name, reference, noise, math.inf)

    def _widened(self, name: str, reference: Array, noise: Noise, ceiling: float) -> Array:
        scales = group_scales(reference)
        if name in self.voted:
            scales = np.full_like(scales, scales.max(initial=0.0))
        widened = np.minimum(self.rule.factor * noise.groups, _share(scales, ceiling))
        groups = widened + self._per_scale(name, reference) * scales
        return spread(groups + self._absolute(name, reference), reference.shape)

    def mean(
        self, name: str, reference: Array, noise: Noise, *, ceiling: float | None = None
    ) -> Array | None:
        """Return the root mean square difference allowed per group, axes kept; None for no such tolerance.

        Args:
            ceiling: the rule's unless given.
        """
        signal = root_mean_squares(np.where(np.isfinite(reference), reference, 0.0))
        if self.is_given or self.rule.mean_factor is None or noise.rms is None or signal is None:
            return None
        rounding = self._per_scale(name, reference) * signal + self._absolute(name, reference)
        # Half: not every element is rounded as far as one can be.
        most = _share(signal, self.rule.ceiling if ceiling is None else ceiling)
        widened = np.minimum(self.rule.mean_factor * noise.rms, most)
        return np.asarray(widened + rounding / 2)

    def _per_scale(self, name: str, reference: Array) -> float:
        # A known step is more precise than a share of the scale.
        eps = _EPS[reference.dtype.name]
        eps = max(eps, self.rule.eps) if name not in self.steps else eps
        share = ROUNDING_FACTOR * _EPS32 * math.sqrt(self.length)
        if self.are_terms_equal:
            share = max(share, min(_EPS32 / 2 * self.length, _MOST_OF_EQUAL_TERMS))
        return share + eps

    def floor(self, name: str, dtype: str) -> float:
        """Return the absolute error of an output near 0, if a Sigmoid gives it."""
        if dtype not in _EPS:  # labels
            return 0.0
        floor = max(_EPS[dtype], self.rule.floor) if name in self.saturating else 0.0
        floor = max(floor, _EPS32 * self.added.get(name, 0.0))
        return max(floor, _CUT * _EPS32) if name in self.gated else floor

    def _absolute(self, name: str, reference: Array) -> float:
        return self.steps.get(name, self.floor(name, reference.dtype.name))

    def describe_pass(self, name: str, dtype: str, largest: float, noise: float, scale: float) -> str:
        """Return the rule that a float output meets, in words.

        Args:
            largest, noise, scale: the largest difference, noise and magnitude over all sets.
        """
        if self.is_given:
            return f"within atol {self.atol or 0:g} + rtol {self.rtol or 0:g} as given"
        if self.precision not in RULES:
            # An artefact may compute float64 in float32 (_EPS).
            return f"within {'float32' if dtype == 'float64' else dtype} noise"
        if step := self.steps.get(name):
            count = round(largest / step)
            plural = "" if count == 1 else "s"
            return f"{count} quantization step{plural}, ONNX Runtime against itself {round(noise / step)}"
        if self.precision in ("float16", "bfloat16", "float16 weights", "bfloat16 weights"):
            return f"expected {self.rule.name}"
        share, own = (value / scale if scale else 0.0 for value in (largest, noise))
        return f"within {self.rule.name}: {share:.1%} of scale, ONNX Runtime against itself {own:.1%}"

    def describe_fault(self, ratio: float) -> str:
        """Return the words before the figures of a difference of `ratio` times the tolerance."""
        if self.is_given or self.precision not in RULES:
            return ""
        return f"{'far ' if ratio > _FAR else ''}beyond {self.rule.name}: "


def _share(signal: Array, ceiling: float) -> Array:
    """Return how much noise may add to the tolerance for a signal; infinite for no signal."""
    return np.where(signal > 0, ceiling * np.where(signal > 0, signal, 1.0), math.inf)


def group_axis(shape: Sequence[int]) -> int | None:
    """Return the axis along which to group elements: the smallest after the first with more than one entry.

    None, for one group, when that axis is long or its groups have too few elements to estimate their noise.
    """
    axes = [axis for axis in range(1, len(shape)) if shape[axis] > 1]
    if not axes:
        return None
    axis = min(axes, key=lambda axis: shape[axis])
    fits = shape[axis] <= _MOST_GROUPS and math.prod(shape) >= _SMALLEST_GROUP * shape[axis]
    return axis if fits else None


def group_maxima(values: Array) -> Array:
    """Return the largest value of each group, float64[groups]."""
    axis = group_axis(values.shape)
    if axis is None:
        return np.array([values.max(initial=0.0)])
    others = tuple(i for i in range(values.ndim) if i != axis)
    maxima: Array = values.max(axis=others, initial=0.0)
    return maxima


def spread(groups: Array, shape: Sequence[int]) -> Array:
    """Return per-group values as an array that broadcasts to `shape`."""
    axis = group_axis(shape)
    if axis is None:
        return groups.reshape((1,) * len(shape))
    return groups.reshape(tuple(-1 if i == axis else 1 for i in range(len(shape))))


def group_scales(reference: Array) -> Array:
    """Return the largest finite magnitude of each group, float64[groups]."""
    return group_maxima(np.where(np.isfinite(reference), np.abs(reference), 0.0))


def root_mean_squares(values: Array) -> Array | None:
    """Return the root mean square of each group, float64 with all axes kept; of the whole where groups are small.

    None for fewer than 32 values: their mean shows no more than the largest of them.
    """
    if values.size < _LEAST_FOR_MEAN:
        return None
    axis = group_axis(values.shape)
    if axis is not None and values.size < _LEAST_FOR_MEAN * values.shape[axis]:
        axis = None
    others = tuple(i for i in range(values.ndim) if i != axis)
    squares: Array = np.mean(np.square(values.astype(np.float64)), axis=others, keepdims=True)
    return np.sqrt(squares)


def measure_noise(reference: Array, probes: Iterable[Array]) -> Noise:
    """Measure the noise of an answer by the answers of probes, which differ from it by rounding alone."""
    unstable = np.zeros(reference.shape, bool)
    differences = np.zeros(reference.shape)
    rms: Array | None = None
    for probe in probes:
        if probe.shape != reference.shape:
            return Noise(np.array([np.inf]), None, reshaped=True)
        if reference.dtype.kind in "fc":
            differing, difference = float_differences(reference, probe)
            unstable |= differing
            np.maximum(differences, difference, out=differences)
            mean = root_mean_squares(difference)
            rms = mean if rms is None or mean is None else np.maximum(rms, mean)
        else:
            unstable |= reference != probe
    if rms is None:
        rms = root_mean_squares(differences)  # no probe, no difference
    return Noise(group_maxima(differences), unstable if unstable.any() else None, rms=rms)


def float_differences(reference: Array, other: Array) -> tuple[Array, Array]:
    """Compare two float arrays.

    Returns:
        bool[shape], where one side is NaN or infinite and the other is not the same; float64[shape],
        |other - reference|, 0 where not both are finite.
    """
    finite = np.isfinite(reference) & np.isfinite(other)
    same = (reference == other) | (np.isnan(reference) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        difference = np.abs(other.astype(np.float64) - reference.astype(np.float64))
    return ~finite & ~same, np.where(finite, difference, 0.0)
