"""Compares what two runtimes answered for one output: a pure function of two results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.error_sums import furthest
from onnxport.validate.tolerance import Noise, Tolerance, float_differences, root_mean_squares, spread

WORST_ELEMENTS = 5


@dataclass(frozen=True)
class Comparison:
    """One output in one set of inputs.

    Attributes:
        mismatches: elements beyond their tolerance, non-finite or exact ones that differ.
        drowned: elements beyond it that the reference's noise would allow if it had no ceiling: they prove nothing.
        ignored: elements of which the reference itself is not sure.
        differences: float64, |candidate - reference| where both are finite; empty for exact dtypes.
        index, ratio: the element that is furthest beyond its tolerance, and how far (1 is the limit).
        furthest: ratio and index of the few that are, this one first; none without a difference.
        allowed: the absolute difference allowed there.
        noise: that of the group of elements it belongs to.
        fault: what is wrong, in words; empty when nothing is.
        rows: the places along the first axis where anything is beyond its tolerance.
    """

    mismatches: int
    ignored: int
    differences: Array
    index: tuple[int, ...]
    ratio: float
    allowed: float
    fault: str
    furthest: Sequence[tuple[float, tuple[int, ...]]] = ()
    noise: float = 0.0
    rows: tuple[int, ...] = ()
    drowned: int = 0


def compare(name: str, reference: Array, candidate: Array, noise: Noise, tolerance: Tolerance) -> Comparison:
    """The candidate's answer `candidate` for the output `name` against the reference's."""
    if noise.reshaped:
        return Comparison(0, reference.size, np.zeros(0), (), 0.0, 0.0, "")
    if candidate.shape != reference.shape:
        fault = f"a fault: shape {list(candidate.shape)}, the reference has {list(reference.shape)}"
        return Comparison(reference.size, 0, np.zeros(0), (), np.inf, 0.0, fault)
    if reference.dtype.kind == "f":
        return _compare_floats(name, reference, candidate, noise, tolerance)
    return _compare_exact(reference, candidate, noise)


def _compare_floats(
    name: str, reference: Array, candidate: Array, noise: Noise, tolerance: Tolerance
) -> Comparison:
    pattern, differences = float_differences(reference, candidate)
    allowed = np.broadcast_to(tolerance.allowed(name, reference, noise), reference.shape)
    means = _Means.of(differences, tolerance.mean(name, reference, noise))
    ratios = _ratios(differences, allowed, means)
    drowned = 0
    if (ratios > 1).any():
        beyond = ratios > 1
        allowed = np.broadcast_to(tolerance.of_noise(name, reference, noise), reference.shape)
        means = _Means.of(differences, tolerance.mean(name, reference, noise, ceiling=np.inf))
        ratios = _ratios(differences, allowed, means)
        unsure = beyond & (ratios <= 1) & ~pattern
        if noise.unstable is not None:
            unsure &= ~noise.unstable
        drowned = int(unsure.sum())
    ratios[pattern] = np.inf
    ignored = _ignore(ratios, noise)
    if not ratios.size:
        return Comparison(0, ignored, differences, (), 0.0, 0.0, "")
    worst = furthest(ratios, WORST_ELEMENTS)
    index = worst[0][1] if worst else (0,) * ratios.ndim
    ratio, limit = float(ratios[index]), float(allowed[index])
    fault = ""
    if ratio > 1:
        said = _float_fault(reference[index], candidate[index], index, limit, means)
        fault = f"{tolerance.beyond(ratio)}: {said}"
    count = int((ratios > 1).sum())
    own = float(np.broadcast_to(spread(noise.groups, reference.shape), reference.shape)[index])
    rows = _rows(ratios > 1) if count else ()
    return Comparison(count, ignored, differences, index, ratio, limit, fault, worst, own, rows, drowned)


def _ratios(differences: Array, allowed: Array, means: _Means) -> Array:
    """Differences over what is allowed, of the element and of its group's mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(differences > 0, differences / allowed, 0.0)
    means.add_to(ratios, differences)
    return ratios


@dataclass(frozen=True)
class _Means:
    """The root mean squares of differences and what is allowed of them, per group with axes kept; None for none."""

    found: Array | None
    allowed: Array | None

    @classmethod
    def of(cls, differences: Array, allowed: Array | None) -> _Means:
        return cls(None if allowed is None else root_mean_squares(differences), allowed)

    def add_to(self, ratios: Array, differences: Array) -> None:
        """Raises the ratios of groups whose differences are larger on average than they may be."""
        if self.allowed is None or self.found is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(self.found > 0, self.found / self.allowed, 0.0)
        beyond = (means > 1) & (differences > self.allowed)
        np.maximum(ratios, np.where(beyond, means, 0.0), out=ratios)

    def at(self, index: tuple[int, ...]) -> str:
        """What the element's group is off on average, in words."""
        if self.found is None or self.allowed is None:
            return ""
        found, allowed = (
            float(means[tuple(min(i, size - 1) for i, size in zip(index, means.shape, strict=True))])
            for means in (self.found, self.allowed)
        )
        return f"all around it differ by {found:.1e} on average, allowed {allowed:.0e}"


def _compare_exact(reference: Array, candidate: Array, noise: Noise) -> Comparison:
    """Integers, booleans and strings: equal, but where the reference itself flips."""
    differing = np.asarray(reference != candidate).astype(np.float64)
    ignored = _ignore(differing, noise)
    count = int(differing.sum())
    if not count:
        return Comparison(0, ignored, np.zeros(0), (), 0.0, 0.0, "")
    worst = furthest(differing, WORST_ELEMENTS)
    index = worst[0][1]
    fault = (
        f"a fault: {candidate[index]} at {list(index)}, the reference says {reference[index]}; "
        f"{count} of {reference.size} elements differ"
    )
    return Comparison(
        count, ignored, np.zeros(0), index, np.inf, 0.0, fault, worst, rows=_rows(differing > 0)
    )


def _rows(beyond: Array) -> tuple[int, ...]:
    return tuple(sorted(set(np.nonzero(beyond)[0].tolist()))) if beyond.ndim else ()


def _ignore(ratios: Array, noise: Noise) -> int:
    """Clears the elements that the reference is not sure of; their number."""
    if noise.unstable is None:
        return 0
    ratios[noise.unstable] = 0.0
    return int(noise.unstable.sum())


def _float_fault(
    reference: Any, candidate: Any, index: tuple[int, ...], allowed: float, means: _Means
) -> str:
    where = f"at [{','.join(map(str, index))}]"
    if not (np.isfinite(reference) and np.isfinite(candidate)):
        return f"{candidate} {where}, the reference says {reference:.6g}"
    difference = abs(float(candidate) - float(reference))
    if difference <= allowed:
        return f"{difference:.1e} {where}, {means.at(index)}"
    return f"{difference:.1e} {where}, allowed {allowed:.0e}"
