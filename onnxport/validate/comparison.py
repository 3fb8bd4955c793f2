"""Compare two runtimes' answers for one output; a pure function of two arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.error_sums import worst_elements
from onnxport.validate.tolerance import Noise, Tolerance, float_differences, root_mean_squares, spread

WORST_ELEMENTS = 5


@dataclass(frozen=True)
class Comparison:
    """One output in one set of inputs.

    Attributes:
        mismatches: number of elements beyond their tolerance, and of non-finite or exact ones that differ.
        ignored: number of elements that are unstable in the reference itself.
        index, ratio: the element furthest beyond its tolerance, and its difference over the tolerance (1 is the limit).
        allowed: the absolute difference allowed there.
        fault: the fault in words; empty for none.
        worst: ratio and index of the worst few elements, the worst first; none without a difference.
        noise: of the worst element's group.
        rows: the places along the first axis where anything is beyond its tolerance.
        inconclusive: number of elements beyond their tolerance that the reference's noise would allow without its
            ceiling: they prove nothing.
        undecided: bool[shape], elements that are right by another decision than the reference's (near_ties.py), and
            all others that hang on the same decisions; None for none.
        moved: bool[shape], elements of rows that are right in another place (order_ties.py); None for none.
    """

    mismatches: int
    ignored: int
    index: tuple[int, ...]
    ratio: float
    allowed: float
    fault: str
    worst: Sequence[tuple[float, tuple[int, ...]]] = ()
    noise: float = 0.0
    rows: tuple[int, ...] = ()
    inconclusive: int = 0
    undecided: Array | None = None
    moved: Array | None = None


class Alternative(Protocol):
    """Another answer that a right runtime may give, by a decision that the reference's rounding leaves open."""

    def ratios(self, candidate: Array) -> Array:
        """Return differences over what is allowed, float64[shape]; infinite for elements that are decided."""

    def spread(self, accepted: Array) -> Array | None:
        """Return bool[shape]: the elements that hang on the same decisions as the accepted ones.

        None where the accepted ones are decided, and stand in another place.
        """


def compare(
    name: str,
    reference: Array,
    candidate: Array,
    noise: Noise,
    tolerance: Tolerance,
    alternatives: Sequence[Alternative] = (),
) -> Comparison:
    """Compare the candidate's answer for the output `name` with the reference's, or with an alternative to it."""
    if alternatives and not noise.reshaped and candidate.shape == reference.shape:
        return _compare_with(alternatives, name, reference, candidate, noise, tolerance)
    if noise.reshaped:
        return Comparison(0, reference.size, (), 0.0, 0.0, "")
    if candidate.shape != reference.shape:
        fault = f"shape {list(candidate.shape)}, the reference has {list(reference.shape)}"
        return Comparison(reference.size, 0, (), np.inf, 0.0, fault)
    if reference.dtype.kind == "f":
        return _compare_floats(name, reference, candidate, noise, tolerance)
    return _compare_exact(reference, candidate, noise)


def _compare_with(
    alternatives: Sequence[Alternative],
    name: str,
    reference: Array,
    candidate: Array,
    noise: Noise,
    tolerance: Tolerance,
) -> Comparison:
    """Compare with the reference where an element equals none of the alternatives."""
    accepted = np.zeros(reference.shape, bool)
    undecided = np.zeros(reference.shape, bool)
    moved = np.zeros(reference.shape, bool)
    own = np.broadcast_to(_differs(name, reference, candidate, noise, tolerance), reference.shape)
    for alternative in alternatives:
        fits = own & ~accepted & (alternative.ratios(candidate) <= 1)
        accepted |= fits
        spread = alternative.spread(fits)
        if spread is None:
            moved |= fits
        else:
            undecided |= spread
    found = compare(name, reference, np.where(accepted, reference, candidate), noise, tolerance)
    return replace(
        found,
        undecided=undecided if undecided.any() else None,
        moved=moved if moved.any() else None,
    )


def _differs(name: str, reference: Array, candidate: Array, noise: Noise, tolerance: Tolerance) -> Array:
    """Return bool, broadcasting to the shape: elements that are not right by the reference's own decisions."""
    if reference.dtype.kind != "f":
        return np.asarray(reference != candidate)
    pattern, differences = float_differences(reference, candidate)
    return pattern | (differences > tolerance.allowed(name, reference, noise))


def _compare_floats(
    name: str, reference: Array, candidate: Array, noise: Noise, tolerance: Tolerance
) -> Comparison:
    pattern, differences = float_differences(reference, candidate)
    allowed = np.broadcast_to(tolerance.allowed(name, reference, noise), reference.shape)
    means = _Means.of(differences, tolerance.mean(name, reference, noise))
    ratios = _ratios(differences, allowed, means)
    inconclusive = 0
    if (ratios > 1).any():
        beyond = ratios > 1
        allowed = np.broadcast_to(tolerance.without_ceiling(name, reference, noise), reference.shape)
        means = _Means.of(differences, tolerance.mean(name, reference, noise, ceiling=np.inf))
        ratios = _ratios(differences, allowed, means)
        explained = beyond & (ratios <= 1) & ~pattern
        if noise.unstable is not None:
            explained &= ~noise.unstable
        inconclusive = int(explained.sum())
    ratios[pattern] = np.inf
    ignored = _ignore(ratios, noise)
    if not ratios.size:
        return Comparison(0, ignored, (), 0.0, 0.0, "")
    worst = worst_elements(ratios, WORST_ELEMENTS)
    index = worst[0][1] if worst else (0,) * ratios.ndim
    ratio, limit = float(ratios[index]), float(allowed[index])
    fault = ""
    if ratio > 1:
        figures = _float_fault(reference[index], candidate[index], index, limit, means)
        fault = f"{tolerance.describe_fault(ratio)}{figures}"
    count = int((ratios > 1).sum())
    own = float(np.broadcast_to(spread(noise.groups, reference.shape), reference.shape)[index])
    rows = _rows(ratios > 1) if count else ()
    return Comparison(count, ignored, index, ratio, limit, fault, worst, own, rows, inconclusive)


def _ratios(differences: Array, allowed: Array, means: _Means) -> Array:
    """Return differences over what is allowed: of the element, or of its group's mean if that is larger."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(differences > 0, differences / allowed, 0.0)
    means.add_to(ratios, differences)
    return ratios


@dataclass(frozen=True)
class _Means:
    """Root mean squares of the differences, and those allowed, per group with axes kept; None for none."""

    found: Array | None
    allowed: Array | None

    @classmethod
    def of(cls, differences: Array, allowed: Array | None) -> _Means:
        return cls(None if allowed is None else root_mean_squares(differences), allowed)

    def add_to(self, ratios: Array, differences: Array) -> None:
        """Raise the ratios of groups whose mean difference is beyond what is allowed."""
        if self.allowed is None or self.found is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(self.found > 0, self.found / self.allowed, 0.0)
        beyond = (means > 1) & (differences > self.allowed)
        np.maximum(ratios, np.where(beyond, means, 0.0), out=ratios)

    def describe(self, index: tuple[int, ...]) -> str:
        """Return the mean difference of the element's group, in words."""
        if self.found is None or self.allowed is None:
            return ""
        found, allowed = (
            float(means[tuple(min(i, size - 1) for i, size in zip(index, means.shape, strict=True))])
            for means in (self.found, self.allowed)
        )
        return f"the elements around it differ by {found:.1e} on average, allowed {allowed:.0e}"


def _compare_exact(reference: Array, candidate: Array, noise: Noise) -> Comparison:
    """Compare integers, booleans or strings: they must be equal, except where the reference is unstable."""
    differing = np.asarray(reference != candidate).astype(np.float64)
    ignored = _ignore(differing, noise)
    count = int(differing.sum())
    if not count:
        return Comparison(0, ignored, (), 0.0, 0.0, "")
    worst = worst_elements(differing, WORST_ELEMENTS)
    index = worst[0][1]
    fault = (
        f"{candidate[index]} at {list(index)}, the reference has {reference[index]}; "
        f"{count} of {reference.size} elements differ"
    )
    return Comparison(count, ignored, index, np.inf, 0.0, fault, worst, rows=_rows(differing > 0))


def _rows(beyond: Array) -> tuple[int, ...]:
    return tuple(sorted(set(np.nonzero(beyond)[0].tolist()))) if beyond.ndim else ()


def _ignore(ratios: Array, noise: Noise) -> int:
    """Clear the elements that are unstable in the reference; return their number."""
    if noise.unstable is None:
        return 0
    ratios[noise.unstable] = 0.0
    return int(noise.unstable.sum())


def _float_fault(
    reference: Any, candidate: Any, index: tuple[int, ...], allowed: float, means: _Means
) -> str:
    where = f"at [{','.join(map(str, index))}]"
    if not (np.isfinite(reference) and np.isfinite(candidate)):
        return f"{candidate} {where}, the reference has {reference:.6g}"
    difference = abs(float(candidate) - float(reference))
    if difference <= allowed:
        return f"difference {difference:.1e} {where}, {means.describe(index)}"
    return f"difference {difference:.1e} {where}, allowed {allowed:.0e}"
