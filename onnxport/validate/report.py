"""The verdict on a pair of artefacts as data; JSON, the terminal and every other format show it.

A report has one judgement per criterion and never mixes them: *fidelity* (does the candidate compute what an ONNX model
with the same roundings computes?), *quality* (what did the lower precision cost against the float original?) and
*translation* (is it, node for node, the original with quantization in it?). This module imports no array library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from pydantic import ConfigDict

from onnxport.core.lean_records import LeanRecord
from onnxport.core.tabular import Documented

# The last three exit with 0, `unproven` only because the user asked for no proof. `proven` is about what a candidate
# computes; `measured` is about the cost of a lower precision, a figure within its limits and no proof.
Verdict = Literal["not equivalent", "over budget", "inconclusive", "unproven", "proven", "measured"]
# The overall verdict is the first of these that a part has: `measured` where nothing was proven.
WORST_FIRST: tuple[Verdict, ...] = get_args(Verdict)
# Verdicts on a right candidate, and all with which it passes.
RIGHT: frozenset[Verdict] = frozenset(("proven", "measured"))
LEAVES: frozenset[Verdict] = RIGHT | {"unproven"}
Criterion = Literal["fidelity", "quality", "translation"]
# The precision of an artefact; "mixed" where no single name fits. docs/reference/fidelity.md has the reference for
# each.
Precision = Literal[
    "float32",
    "float64",
    "float16",
    "float16 weights",
    "bfloat16",
    "bfloat16 weights",
    "int8",
    "int8 dynamic",
    "int8 weights",
    "int4 weights",
    "palettized weights",
    "sparse weights",
    "int16x8",
    "mixed",
    "unknown",
]

# `against` of a judgement on single nodes, see rounding_errors.py.
AUDITED = "the reference's nodes, each on the candidate's own values"


class _Record(LeanRecord):
    # Strings for non-finite numbers: JSON has none, and null would not read back.
    # Deferred: a run builds those that it has, inner ones as parts of others.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class Worst(_Record):
    """The element that is furthest off, its place and both sides' values.

    Attributes:
        scale: the largest finite magnitude that the reference gave for this output in that set; 0 where unknown.
    """

    index: tuple[int, ...]
    reference: float
    candidate: float
    input_set: str
    scale: float = 0.0

    @property
    def difference(self) -> float:
        """The absolute difference; infinite where one alone is NaN or infinite."""
        difference = abs(self.candidate - self.reference)
        return math.inf if math.isnan(difference) else difference


class Figure(_Record):
    """A metric's value over all ordinary sets of inputs, and the user's budget for it, if any.

    Attributes:
        metric: its name in `--budget`: "sqnr", "top1_agreement", "char_error_rate".
        value: Infinity for a ratio without error.
        unit: "dB", "ULP", ""; shares are 0 to 1 and have no unit.
        better: the good direction, and so whether `budget` is the least or the most that passes.
        budget, met: the user's limit, and whether the value meets it; None without a budget.
    """

    metric: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    budget: float | None = None
    met: bool | None = None


class Histogram(_Record):
    """Numbers of elements by their difference, in decades.

    Attributes:
        edges: log10 of |difference| / scale; bin i lies between edges[i] and edges[i + 1], and the first and last
            bins count what lies beyond them.
        counts: elements per bin, one fewer than the edges.
        equal: elements without any difference.
        allowed: log10 of tolerance / scale at the worst element, with the scale of its own set; None where nothing
            is allowed.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    equal: int
    allowed: float | None


class NonFinite(_Record):
    """Elements that are NaN or infinite on either side, and those that are so on one side only."""

    reference_nan: int
    candidate_nan: int
    reference_infinite: int
    candidate_infinite: int
    differing: int

    def describe(self, elements: int) -> str:
        """Describe what differs of `elements`; empty for nothing."""
        if not self.differing:
            return ""
        for kind, ours, theirs in (
            ("NaN", self.reference_nan, self.candidate_nan),
            ("infinite", self.reference_infinite, self.candidate_infinite),
        ):
            if theirs > ours:
                other = f", the reference in {ours:,}" if ours else " where the reference has none"
                return f"{kind} in {theirs:,} of {elements:,}{other}"
        return f"{self.differing:,} of {elements:,} are NaN or infinite on one side only"


class NodeRef(_Record):
    """An ONNX node, named as in Netron.

    Attributes:
        name: the node's name; empty if it has none.
        op: its operator type.
        value: the name of one of its outputs.
        stage: "source model", the stage that lowered it ("tflite"), or "candidate model" where `debug` found it in
            another ONNX file.
    """

    name: str
    op: str
    value: str
    stage: str = "source model"


class OutputReport(_Record):
    """The figures of one output.

    Differences, scale, noise, SQNR, metrics and histogram are over the ordinary input sets; the others include the
    adversarial companions.

    Attributes:
        rule: the rule that decided, in words.
        max_abs, mean_abs: the largest and the mean absolute difference; infinite where one side alone is not finite.
        scale: the largest finite magnitude that the reference gave.
        noise: the difference of ONNX Runtime from itself on the same inputs (docs/reference/tolerances.md).
        noise_there: the noise in the worst element's set and group of elements.
        tolerance: the absolute difference allowed at the worst element. It and both noises are 0 for quality.
        sqnr_db: signal to quantization noise ratio, 10 log10(sum ref^2 / sum diff^2); None without error, -Infinity
            where one side alone is not finite.
        mismatches: elements beyond their tolerance, and non-finite or integer elements that differ.
        elements: number of elements compared.
        worst: see Worst; `worst_elements` are the worst few of all sets, the worst first.
        node: the reference's node that makes it, if the graph can be read.
        figures: further metrics that this output has.
        nonfinite: None when every element is finite on both sides, or for exact dtypes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    verdict: Verdict
    rule: str
    max_abs: float
    mean_abs: float
    scale: float
    noise: float
    tolerance: float
    sqnr_db: float | None
    mismatches: int
    elements: int
    worst: Worst | None = None
    worst_elements: tuple[Worst, ...] = ()
    node: NodeRef | None = None
    figures: tuple[Figure, ...] = ()
    histogram: Histogram | None = None
    nonfinite: NonFinite | None = None
    noise_there: float = 0.0

    @property
    def broken(self) -> str:
        """Elements that are NaN or infinite on one side alone, in words; empty for none."""
        return self.nonfinite.describe(self.elements) if self.nonfinite is not None else ""

    @property
    def difference(self) -> float | None:
        """The most relevant difference: the worst element's where it is a fault or only a companion differs, else the
        largest. None where the two sides cannot be subtracted."""
        if self._uses_worst:
            return self.worst.difference if self.worst is not None else None
        return self.max_abs

    @property
    def share(self) -> float | None:
        """`difference` as a share of its scale; the difference itself where the scale is 0."""
        difference = self.difference
        if difference is None:
            return None
        scale = self.worst.scale if self._uses_worst and self.worst is not None else self.scale
        return difference / (scale or 1.0)

    @property
    def _uses_worst(self) -> bool:
        return self.verdict == "not equivalent" or (not self.max_abs and self.worst is not None)


def telling(outputs: Sequence[OutputReport]) -> OutputReport | None:
    """Return the output behind the verdict on all; None without outputs.

    It has the worst verdict and the most mismatches, or the largest difference for its scale where all are right.
    """
    verdict = min((output.verdict for output in outputs), key=WORST_FIRST.index, default="proven")
    found = [output for output in outputs if output.verdict == verdict]
    if verdict in RIGHT:
        return max(found, key=lambda output: output.share or 0.0, default=None)
    return max(found, key=lambda output: output.mismatches, default=None)


def overall(judgements: Sequence[Judgement]) -> tuple[Verdict, str]:
    """Return the worst verdict and the reasons of all judgements that have it.

    A translation that could not be proven leaves the others' verdict as it is.
    """
    asked = [each for each in judgements if (each.question, each.verdict) != ("translation", "unproven")]
    verdict = min((judgement.verdict for judgement in asked or judgements), key=WORST_FIRST.index)
    alike = RIGHT if verdict in RIGHT else frozenset((verdict,))
    return verdict, "; ".join(judgement.reason for judgement in judgements if judgement.verdict in alike)


class InputSet(_Record):
    """One set of inputs that both sides were run on.

    Attributes:
        steps: runs in a row with the state fed back; 1 for models without a state.
    """

    label: str
    shapes: dict[str, tuple[int, ...]]
    source: Literal["samples", "generated"]
    steps: int = 1


class Side(_Record):
    """One of the two artefacts and its runtime."""

    path: str
    format: str
    runtime: str
    size: int
    digest: str
    precision: Precision = "unknown"


class Judgement(_Record):
    """The result of one criterion.

    Attributes:
        question: the criterion.
        against: the reference of the comparison: "the reference itself", "the reference with weights and activations
            rounded to float16".
        metrics: the user's own metrics, over all outputs together.
    """

    question: Criterion
    verdict: Verdict
    reason: str
    against: str
    outputs: tuple[OutputReport, ...] = ()
    metrics: tuple[Figure, ...] = ()


class LayerFigure(_Record):
    """One intermediate value that both sides show.

    Attributes:
        sqnr_db: Infinity without error; None where the reference's signal is 0 or not finite.
        local_share: the largest difference from the reference's node on the candidate's own inputs to it, over what is
            allowed; above 1 the node itself is at fault. None where it was not measured.
        local_sqnr_db: the SQNR of this node alone, against the unrounded reference's node on the candidate's own inputs
            to it; as `sqnr_db`, and None where it was not measured.
    """

    node: NodeRef
    max_abs: float
    scale: float
    sqnr_db: float | None
    local_share: float | None = None
    local_sqnr_db: float | None = None


class Diagnosis(_Record):
    """Where two artefacts begin to differ.

    Attributes:
        summary: the finding in one sentence.
        node: the first node that differs; None for none.
        candidates: all nodes between the last values that agree and the first that differs, if there are several.
        worst: the worst element of its value.
        input_set: the inputs that show it.
        tapping: the change that showing intermediate values made, in words; empty for none.
        repro: the folder with the minimal model, its inputs and the command; None if none was written.
        runs: the number of runs of the candidate.
        layers: the figures per value, in the graph's order.
    """

    summary: str
    node: NodeRef | None
    candidates: tuple[NodeRef, ...] = ()
    worst: Worst | None = None
    input_set: str = ""
    tapping: str = ""
    repro: str | None = None
    runs: int = 0
    layers: tuple[LayerFigure, ...] = ()
    notes: tuple[str, ...] = ()


class SaturatingNode(_Record):
    """A product that saturates on x86 CPUs without VNNI.

    Attributes:
        share: of its results that are wrong.
        sqnr_db: of its result, by saturation alone.
    """

    node: str
    op: str
    share: float
    sqnr_db: float


class Saturation(_Record):
    """The computed loss of a quantized ONNX file in ONNX Runtime on x86 CPUs without VNNI (saturation.py).

    Attributes:
        exact_db, saturated_db: SQNR of the worst output against the reference, as ONNX defines the file, and there.
        nodes: the products that saturate, the largest loss first.
    """

    exact_db: float
    saturated_db: float
    nodes: tuple[SaturatingNode, ...] = ()

    def __str__(self) -> str:
        most = ", ".join(
            f"{each.op} {each.node!r} ({each.share:.1%} of its results, {each.sqnr_db:.1f} dB by itself)"
            for each in self.nodes[:3]
        )
        return (
            f"on x86 CPUs without VNNI this file has an SQNR of {self.saturated_db:.1f} dB, elsewhere "
            f"{self.exact_db:.1f} dB: ONNX Runtime's kernels there saturate sums of two products, most at {most}. "
            "ARM, LiteRT and Core ML do not. onnxport quantize --int8 avoids this by default (--for-cpu any) "
            "for values within those of its samples; more varied samples or --reduce-range avoid the rest"
        )


class Report(Documented, _Record):
    """The comparison of a candidate with its reference.

    Attributes:
        verdict, reason: the worst of the judgements'.
        judgements: fidelity, quality and translation, those that were asked, in this order; empty when validation was
            waived.
        diagnosis: the finding of `debug`.
        saturation: see Saturation; None where nothing saturates, or where it was not computed.
    """

    reference: Side
    candidate: Side
    verdict: Verdict
    reason: str
    judgements: tuple[Judgement, ...] = ()
    fed: tuple[InputSet, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None
    saturation: Saturation | None = None

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Show a line, not every figure."""
        yield from (("verdict", self.verdict), ("reason", self.reason))
        yield from (("reference", self.reference.path), ("candidate", self.candidate.path))

    @property
    def passed(self) -> bool:
        """Whether the command exits with 0."""
        return self.verdict in LEAVES

    @property
    def outputs(self) -> tuple[OutputReport, ...]:
        """The outputs of the first judgement, which is about the candidate's own arithmetic."""
        return self.judgements[0].outputs if self.judgements else ()

    @property
    def telling(self) -> OutputReport | None:
        """The output behind the verdict, see `telling`; None without one."""
        return telling(self.shown.outputs) if self.shown is not None else None

    @property
    def shown(self) -> Judgement | None:
        """`asked`, or the first judgement on outputs if that has none; None where no judgement has."""
        judged = [each for each in self.judgements if each.outputs]
        return next((each for each in judged if each is self.asked), judged[0] if judged else None)

    @property
    def asked(self) -> Judgement | None:
        """The first judgement with the report's verdict; None where there is none."""
        found = (judgement for judgement in self.judgements if judgement.verdict == self.verdict)
        return next(found, self.judgements[0]) if self.judgements else None
