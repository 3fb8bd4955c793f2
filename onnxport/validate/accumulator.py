"""One output's comparisons over all sets of inputs, summed up for its part of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.validate.comparison import WORST_ELEMENTS, Comparison
from onnxport.validate.error_sums import ElementSums
from onnxport.validate.metrics import OutputSums, figures, scale_of
from onnxport.validate.report import NodeRef, NonFinite, OutputReport, Verdict, Worst
from onnxport.validate.tolerance import Noise, Tolerance

# Of all elements. That no probe changed so few of them is chance.
_FEW = 0.001
# Of the elements of ordinary sets. Where more hang on decisions that go the other way, the rest proves too little.
_MOST_UNDECIDED = 0.1


@dataclass
class Tally:
    """One output over all sets of inputs.

    The figures are over the ordinary sets, which resemble a user's inputs. Adversarial companions can be of any
    magnitude; they count for faults only.

    Attributes:
        node: the reference's node that makes the output, if known.
        ordinary: sums over the ordinary sets.
        companions: sums over the others.
        worst_comparison: the one with the largest ratio.
        worst: ratio and element of the worst few.
    """

    name: str
    dtype: str
    node: NodeRef | None = None
    ordinary: OutputSums = field(default_factory=OutputSums)
    companions: ElementSums = field(default_factory=ElementSums)
    shape: tuple[int, ...] = ()
    elements: int = 0
    mismatches: int = 0
    ignored: int = 0
    inconclusive: int = 0
    undecided: int = 0
    undecided_ordinary: int = 0
    moved: int = 0
    noise: float = 0.0
    worst_comparison: Comparison | None = None
    worst: list[tuple[float, Worst]] = field(default_factory=list)

    def add(
        self,
        label: str,
        reference: Array,
        candidate: Array,
        noise: Noise,
        found: Comparison,
        *,
        companion: bool = False,
    ) -> None:
        """Count the comparison of one set.

        Args:
            companion: whether the set is an adversarial companion.
        """
        self.shape = self.shape or reference.shape
        self.elements += reference.size
        self.mismatches += found.mismatches
        self.ignored += found.ignored
        # Companions resemble no real inputs: their noise is no reason to call an output inconclusive.
        self.inconclusive += 0 if companion else found.inconclusive
        if found.undecided is not None:
            count = int(np.count_nonzero(found.undecided))
            self.undecided += count
            self.undecided_ordinary += 0 if companion else count
        self.moved += 0 if found.moved is None else int(np.count_nonzero(found.moved))
        if reference.dtype.kind == "f" and not companion:
            self.noise = max(self.noise, noise.largest)
        if not noise.reshaped and candidate.shape == reference.shape:
            stable = _stable(reference, candidate, noise, found)
            if companion:
                self.companions.add(reference, stable)
            else:
                self.ordinary.add(reference, stable, found.allowed)
        if self.worst_comparison is None or found.ratio > self.worst_comparison.ratio:
            self.worst_comparison = found
        self._add_worst(label, reference, candidate, found)

    def _add_worst(self, label: str, reference: Array, candidate: Array, found: Comparison) -> None:
        """Keep the worst elements: those furthest beyond their tolerance. Strings have none."""
        if reference.dtype.kind not in "fiub" or candidate.shape != reference.shape:
            return
        scale = scale_of(reference) if reference.dtype.kind == "f" and found.worst else 0.0
        self.worst += [
            (
                ratio,
                Worst(
                    index=index,
                    reference=float(reference[index]),
                    candidate=float(candidate[index]),
                    input_set=label,
                    scale=scale,
                ),
            )
            for ratio, index in found.worst
        ]
        self.worst = sorted(self.worst, key=lambda each: each[0], reverse=True)[:WORST_ELEMENTS]

    def report(self, tolerance: Tolerance, doubt: str, accept: bool) -> OutputReport:
        """Return the verdict on the output.

        Args:
            doubt: why the answers prove nothing; empty when they prove something.
            accept: whether to accept an output with such a doubt, unproven.
        """
        verdict, rule = self._verdict(tolerance, doubt, accept)
        sums, found = self.ordinary.sums, self.worst_comparison
        allowed = found.allowed if found else 0.0
        broken = math.inf if sums.broken else 0.0
        is_float = self.dtype.startswith("float")
        scale = sums.scale if is_float else 0.0
        worst = tuple(element for _, element in self.worst)
        # A companion's worst element is judged by the companion's scale.
        limit = allowed * scale / worst[0].scale if worst and worst[0].scale else allowed
        return OutputReport(
            name=self.name,
            dtype=self.dtype,
            shape=self.shape,
            verdict=verdict,
            rule=rule,
            max_abs=max(sums.largest, broken),
            mean_abs=max(sums.mean_abs, broken),
            scale=scale,
            noise=self.noise,
            tolerance=allowed,
            sqnr_db=-math.inf if broken else sums.sqnr_db if is_float and sums.squared else None,
            mismatches=self.mismatches,
            elements=self.elements,
            worst=next(iter(worst), None),
            worst_elements=worst,
            node=self.node,
            figures=figures(TensorSpec(self.name, self.dtype, self.shape), self.ordinary),
            histogram=sums.histogram(scale, limit),
            nonfinite=self._nonfinite,
            noise_there=found.noise if found else 0.0,
        )

    @property
    def _nonfinite(self) -> NonFinite | None:
        """Over all sets; None where every element is finite on both sides."""
        found = [
            each for each in (self.ordinary.sums.nonfinite, self.companions.nonfinite) if each is not None
        ]
        counts = {name: sum(getattr(each, name) for each in found) for name in NonFinite.model_fields}
        return NonFinite(**counts) if found else None

    def _verdict(self, tolerance: Tolerance, doubt: str, accept: bool) -> tuple[Verdict, str]:
        if self.mismatches:
            assert self.worst_comparison is not None
            nonfinite = self._nonfinite
            pattern = nonfinite.describe(self.elements) if nonfinite is not None else ""
            return "not equivalent", "; ".join(filter(None, (self.worst_comparison.fault, pattern)))
        if self.inconclusive > _FEW * self.elements and not doubt:
            doubt = (
                f"{self.inconclusive:,} of {self.elements:,} elements differ by more than "
                f"{tolerance.rule.ceiling:.0%} of the signal, and the reference's own noise there is as large"
            )
        sums = self.ordinary.sums
        if self.undecided_ordinary > _MOST_UNDECIDED * sums.elements and not doubt:
            doubt = (
                f"{self.undecided_ordinary:,} of {sums.elements:,} elements hang on decisions between numbers that "
                "differ by no more than rounding, and the candidate decides otherwise"
            )
        if doubt:
            return "unproven" if accept else "inconclusive", doubt
        if self.dtype.startswith("float") and (sums.largest or self.companions.largest):
            rule = tolerance.describe_pass(self.name, self.dtype, sums.largest, self.noise, sums.scale)
            return "proven", f"{rule}{self._exceptions}"
        if self.undecided or self.moved:
            return "proven", f"exact{self._exceptions}"
        plural = "" if self.ignored == 1 else "s"
        ignored = f", except {self.ignored} element{plural} that rounding changes in the reference itself"
        return "proven", f"exact{ignored if self.ignored else ''}"

    @property
    def _exceptions(self) -> str:
        """Elements that are right by another decision, in words."""
        words = [
            f", except {count:,} element{'' if count == 1 else 's'} {why}"
            for count, why in (
                (self.undecided, "that a tie within rounding decides otherwise"),
                (self.moved, "of rows that scores within rounding order otherwise"),
            )
            if count
        ]
        return "".join(words)


def _stable(reference: Array, candidate: Array, noise: Noise, found: Comparison) -> Array:
    """Return the candidate's answer, with the reference's own elements where these are unstable, undecided or moved."""
    for excepted in (noise.unstable, found.undecided, found.moved):
        if excepted is not None:
            candidate = np.where(excepted, reference, candidate)
    return candidate
