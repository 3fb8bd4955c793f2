"""Compares what two runtimes answered: a pure function of two results, and the tally of many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxport.validate.metrics import ErrorSums, scale_of
from onnxport.validate.report import OutputReport, Verdict, Worst
from onnxport.validate.tolerance import Noise, Tolerance, float_differences

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Comparison:
    """One output in one set of inputs.

    Attributes:
        mismatches: elements beyond their tolerance, non-finite or exact ones that differ.
        ignored: elements of which the reference itself is not sure.
        differences: float64, |candidate - reference| where both are finite; empty for exact dtypes.
        index, ratio: the element that is furthest beyond its tolerance, and how far (1 is the limit).
        allowed: the absolute difference allowed there.
        fault: what is wrong, in words; empty when nothing is.
    """

    mismatches: int
    ignored: int
    differences: Array
    index: tuple[int, ...]
    ratio: float
    allowed: float
    fault: str


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
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(differences > 0, differences / allowed, 0.0)
    ratios[pattern] = np.inf
    ignored = _ignore(ratios, noise)
    if not ratios.size:
        return Comparison(0, ignored, differences, (), 0.0, 0.0, "")
    index = _position(ratios)
    ratio, limit = float(ratios[index]), float(allowed[index])
    fault = ""
    if ratio > 1:
        fault = _float_fault(reference[index], candidate[index], index, limit)
    return Comparison(int((ratios > 1).sum()), ignored, differences, index, ratio, limit, fault)


def _compare_exact(reference: Array, candidate: Array, noise: Noise) -> Comparison:
    """Integers, booleans and strings: equal, but where the reference itself flips."""
    differing = np.asarray(reference != candidate).astype(np.float64)
    ignored = _ignore(differing, noise)
    count = int(differing.sum())
    if not count:
        return Comparison(0, ignored, np.zeros(0), (), 0.0, 0.0, "")
    index = _position(differing)
    fault = (
        f"a fault: {candidate[index]} at {list(index)}, the reference says {reference[index]}; "
        f"{count} of {reference.size} elements differ"
    )
    return Comparison(count, ignored, np.zeros(0), index, np.inf, 0.0, fault)


def _ignore(ratios: Array, noise: Noise) -> int:
    """Clears the elements that the reference is not sure of; their number."""
    if noise.unstable is None:
        return 0
    ratios[noise.unstable] = 0.0
    return int(noise.unstable.sum())


def _position(values: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def _float_fault(reference: Any, candidate: Any, index: tuple[int, ...], allowed: float) -> str:
    where = f"at [{','.join(map(str, index))}]"
    if not (np.isfinite(reference) and np.isfinite(candidate)):
        return f"a fault: {candidate} {where}, the reference says {reference:.6g}"
    difference = abs(float(candidate) - float(reference))
    return f"a fault: {difference:.1e} {where}, allowed {allowed:.0e}"


@dataclass
class Tally:
    """One output over all sets of inputs."""

    name: str
    dtype: str
    sums: ErrorSums = field(default_factory=ErrorSums)
    shape: tuple[int, ...] = ()
    elements: int = 0
    mismatches: int = 0
    ignored: int = 0
    max_abs: float = 0.0
    scale: float = 0.0
    noise: float = 0.0
    furthest: Comparison | None = None
    worst: Worst | None = None

    def add(self, label: str, reference: Array, candidate: Array, noise: Noise, found: Comparison) -> None:
        """Counts the comparison of one set."""
        self.shape = self.shape or reference.shape
        self.elements += reference.size
        self.mismatches += found.mismatches
        self.ignored += found.ignored
        if reference.dtype.kind == "f":
            self.scale = max(self.scale, scale_of(reference))
            self.noise = max(self.noise, noise.largest)
        if found.differences.size:
            finite = np.where(np.isfinite(reference), reference, 0.0).astype(np.float64)
            self.sums.add(finite, found.differences)
            self.max_abs = max(self.max_abs, float(found.differences.max()))
        if self.furthest is None or found.ratio > self.furthest.ratio:
            self.furthest = found
            self.worst = _worst(label, reference, candidate, found)

    def report(self, tolerance: Tolerance, doubt: str, accept: bool) -> OutputReport:
        """The verdict on the output; `doubt` says why its answers prove nothing, and is empty when they do."""
        verdict, rule = self._verdict(tolerance, doubt, accept)
        return OutputReport(
            name=self.name,
            dtype=self.dtype,
            shape=self.shape,
            verdict=verdict,
            rule=rule,
            max_abs=self.max_abs,
            mean_abs=self.sums.mean_abs,
            scale=self.scale,
            noise=self.noise,
            tolerance=self.furthest.allowed if self.furthest else 0.0,
            sqnr_db=self.sums.sqnr_db,
            mismatches=self.mismatches,
            elements=self.elements,
            worst=self.worst,
        )

    def _verdict(self, tolerance: Tolerance, doubt: str, accept: bool) -> tuple[Verdict, str]:
        if self.mismatches:
            assert self.furthest is not None
            return "not equivalent", self.furthest.fault
        if doubt:
            return "unproven" if accept else "inconclusive", doubt
        if self.dtype.startswith("float") and self.max_abs:
            given = f"within atol {tolerance.atol or 0:g} + rtol {tolerance.rtol or 0:g} as given"
            return "proven", given if tolerance.is_given else f"within {self.dtype} noise"
        unsure = (
            f", but for {self.ignored} elements of which the reference is not sure" if self.ignored else ""
        )
        return "proven", f"exact{unsure}"


def _worst(label: str, reference: Array, candidate: Array, found: Comparison) -> Worst | None:
    """The worst element of a float or integer output; None where there is no number to show."""
    if reference.dtype.kind not in "fiub" or candidate.shape != reference.shape or not reference.size:
        return None
    if not found.ratio:
        return None
    return Worst(
        index=found.index,
        reference=float(reference[found.index]),
        candidate=float(candidate[found.index]),
        input_set=label,
    )
