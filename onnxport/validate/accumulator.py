"""One output's comparisons over all sets of inputs, added up to its part of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.validate.comparison import WORST_ELEMENTS, Comparison
from onnxport.validate.error_sums import ElementSums
from onnxport.validate.metrics import Seen, figures, scale_of
from onnxport.validate.report import NodeRef, NonFinite, OutputReport, Verdict, Worst
from onnxport.validate.tolerance import Noise, Tolerance

# Of all elements; of so few it is by chance that no probe turned them.
_FEW = 0.001


@dataclass
class Tally:
    """One output over all sets of inputs.

    The figures are over the ordinary sets: what a user's inputs are like. Adversarial companions can be of any
    magnitude, and count where a fault does.

    Args:
        node: the reference's node that makes it, where that is known.

    Attributes:
        seen: of the ordinary sets.
        companions: sums over the others.
    """

    name: str
    dtype: str
    node: NodeRef | None = None
    seen: Seen = field(default_factory=Seen)
    companions: ElementSums = field(default_factory=ElementSums)
    shape: tuple[int, ...] = ()
    elements: int = 0
    mismatches: int = 0
    ignored: int = 0
    drowned: int = 0
    noise: float = 0.0
    furthest: Comparison | None = None
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
        """Counts the comparison of one set; whether it is an adversarial companion."""
        self.shape = self.shape or reference.shape
        self.elements += reference.size
        self.mismatches += found.mismatches
        self.ignored += found.ignored
        # What nobody's inputs look like may be as noisy as it is.
        self.drowned += 0 if companion else found.drowned
        if reference.dtype.kind == "f" and not companion:
            self.noise = max(self.noise, noise.largest)
        if not noise.reshaped and candidate.shape == reference.shape:
            sure = _where_sure(reference, candidate, noise)
            if companion:
                self.companions.add(reference, sure)
            else:
                self.seen.add(reference, sure, found.allowed)
        if self.furthest is None or found.ratio > self.furthest.ratio:
            self.furthest = found
        self._remember(label, reference, candidate, found)

    def _remember(self, label: str, reference: Array, candidate: Array, found: Comparison) -> None:
        """Keeps the worst elements of numbers, the ones furthest beyond their tolerance; strings have none to show."""
        if reference.dtype.kind not in "fiub" or candidate.shape != reference.shape:
            return
        scale = scale_of(reference) if reference.dtype.kind == "f" and found.furthest else 0.0
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
            for ratio, index in found.furthest
        ]
        self.worst = sorted(self.worst, key=lambda each: each[0], reverse=True)[:WORST_ELEMENTS]

    def report(self, tolerance: Tolerance, doubt: str, accept: bool) -> OutputReport:
        """The verdict on the output; `doubt` says why its answers prove nothing, and is empty when they do."""
        verdict, rule = self._verdict(tolerance, doubt, accept)
        sums, allowed = self.seen.sums, self.furthest.allowed if self.furthest else 0.0
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
            figures=figures(TensorSpec(self.name, self.dtype, self.shape), self.seen),
            histogram=sums.histogram(scale, limit),
            nonfinite=self._nonfinite,
            noise_there=self.furthest.noise if self.furthest else 0.0,
        )

    @property
    def _nonfinite(self) -> NonFinite | None:
        """Over all sets; None where every element is finite on both sides."""
        found = [each for each in (self.seen.sums.nonfinite, self.companions.nonfinite) if each is not None]
        counts = {name: sum(getattr(each, name) for each in found) for name in NonFinite.model_fields}
        return NonFinite(**counts) if found else None

    def _verdict(self, tolerance: Tolerance, doubt: str, accept: bool) -> tuple[Verdict, str]:
        if self.mismatches:
            assert self.furthest is not None
            odd = self._nonfinite
            pattern = odd.said(self.elements) if odd is not None else ""
            return "not equivalent", "; ".join(filter(None, (self.furthest.fault, pattern)))
        if self.drowned > _FEW * self.elements and not doubt:
            doubt = (
                f"{self.drowned:,} of {self.elements:,} elements differ by more than {tolerance.rule.ceiling:.0%} of "
                "the signal, where ONNX Runtime differs from itself by as much: that proves nothing"
            )
        if doubt:
            return "unproven" if accept else "inconclusive", doubt
        sums = self.seen.sums
        if self.dtype.startswith("float") and (sums.largest or self.companions.largest):
            return "proven", tolerance.passed(self.name, self.dtype, sums.largest, self.noise, sums.scale)
        unsure = (
            f", but for {self.ignored} element{'' if self.ignored == 1 else 's'} of which the reference is not sure"
            if self.ignored
            else ""
        )
        return "proven", f"exact{unsure}"


def _where_sure(reference: Array, candidate: Array, noise: Noise) -> Array:
    """The candidate's answer, with the reference's own elements where that is not sure of them."""
    if noise.unstable is None or candidate.shape != reference.shape:
        return candidate
    return np.where(noise.unstable, reference, candidate)
