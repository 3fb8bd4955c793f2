"""The verdict on a pair of artefacts as data; JSON, the terminal and every other format are views of it.

A report holds one judgement per question that was asked, and never mixes them: *fidelity* (does the candidate compute
what an ONNX model with the same roundings computes?) and *quality* (what did the lower precision cost against the float
original?). Light on purpose: no array library is needed to read or write one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

# The last three end with exit 0, `unproven` only because the user asked for no proof. `proven` is said of what a
# candidate computes, `measured` of what a lower precision costs: that is a figure within its limits, and no proof.
Verdict = Literal["not equivalent", "over budget", "inconclusive", "unproven", "proven", "measured"]
# The verdict on the whole is the first of these that a part has: `measured` where nothing was proven.
WORST_FIRST: tuple[Verdict, ...] = (
    "not equivalent",
    "over budget",
    "inconclusive",
    "unproven",
    "proven",
    "measured",
)
# What is right as far as it was asked, and what may leave besides.
RIGHT: frozenset[Verdict] = frozenset(("proven", "measured"))
LEAVES: frozenset[Verdict] = RIGHT | {"unproven"}
Question = Literal["fidelity", "quality"]
# What an artefact computes in; "mixed" where no one name fits. docs/fidelity.md has what each is judged against.
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

# What a judgement on single nodes is against, see rounding_errors.py.
AUDITED = "the reference's nodes, each on the candidate's own values"


class _Record(BaseModel):
    # Strings for non-finite numbers: JSON has none, and null would not read back.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Worst(_Record):
    """The element that is furthest off, where it is and what both sides say there.

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
        """How far the two are apart; infinite where one alone is NaN or infinite."""
        difference = abs(self.candidate - self.reference)
        return math.inf if math.isnan(difference) else difference


class Figure(_Record):
    """A metric's value over all ordinary sets of inputs, and the user's budget for it if there is one.

    Attributes:
        metric: its name, as `--budget` knows it: "sqnr", "top1_agreement", "char_error_rate".
        value: Infinity where a ratio has no error below it.
        unit: "dB", "ULP", ""; shares are 0 to 1 and have no unit.
        better: which way is good, and so whether `budget` is the least or the most that passes.
        budget, met: the user's limit and whether the value keeps it; None without a budget.
    """

    metric: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    budget: float | None = None
    met: bool | None = None


class Histogram(_Record):
    """How many elements are how far off, in decades.

    Attributes:
        edges: log10 of |difference| / scale; bin i lies between edges[i] and edges[i + 1], and the first and last
            bins hold what lies beyond them.
        counts: elements per bin, one fewer than the edges.
        equal: elements without any difference.
        allowed: log10 of tolerance / scale at the worst element, the scale of its own set; None where nothing
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
        """What differs of `elements`, in words; empty when nothing does."""
        if not self.differing:
            return ""
        for what, ours, theirs in (
            ("NaN", self.reference_nan, self.candidate_nan),
            ("infinite", self.reference_infinite, self.candidate_infinite),
        ):
            if theirs > ours:
                other = f", the reference in {ours:,}" if ours else " where the reference has none"
                return f"{what} in {theirs:,} of {elements:,}{other}"
        return f"{self.differing:,} of {elements:,} are NaN or infinite on one side only"


class NodeRef(_Record):
    """An ONNX node, named as Netron shows it.

    Attributes:
        name: the node's name; empty if the model gives it none.
        op: its operator type.
        value: the name of its output that is meant.
        stage: what it belongs to in the artefact's making: "source model", the stage that lowered it ("tflite"), or
            "candidate model" where `debug` found it in another ONNX file.
    """

    name: str
    op: str
    value: str
    stage: str = "source model"


class OutputReport(_Record):
    """The figures of one output: differences, scale, noise, SQNR, metrics and histogram are over the ordinary input
    sets, the rest is over all, the adversarial companions among them.

    Attributes:
        max_abs, mean_abs: the largest and the mean absolute difference; infinite where one side alone is not finite.
        scale: the largest finite magnitude that the reference gave.
        noise: what ONNX Runtime differs from itself on the same inputs (see docs/tolerances.md).
        noise_there: the same in the set and the group of elements that the worst element belongs to.
        tolerance: the absolute difference allowed where the worst element is.
        sqnr_db: signal to quantization noise ratio, 10 log10(sum ref^2 / sum diff^2); None if without error, -Infinity
            where one side alone is not finite.
        mismatches: elements beyond their tolerance, and non-finite or integer elements that differ.
        elements: all that were compared.
        noise, noise_there, tolerance: 0 where quality is asked, which knows no tolerance.
        rule: which rule decided, in words.
        node: the reference's node that makes it, where its graph can be read.
        figures: further metrics that have a meaning for this output.
        nonfinite: None when every element is finite on both sides, or for exact dtypes.
        worst: see Worst; `worst_elements` are the worst few of all sets, the worst first.
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
        """What is NaN or infinite on one side alone, in words; empty for nothing."""
        return self.nonfinite.describe(self.elements) if self.nonfinite is not None else ""

    @property
    def difference(self) -> float | None:
        """The difference that tells most: the worst element's where that is a fault or only a companion has one,
        else the largest. None where the two cannot be subtracted."""
        if self._told_by_worst:
            return self.worst.difference if self.worst is not None else None
        return self.max_abs

    @property
    def share(self) -> float | None:
        """`difference` as a share of the scale that belongs to it; the difference itself where that is 0."""
        difference = self.difference
        if difference is None:
            return None
        scale = self.worst.scale if self._told_by_worst and self.worst is not None else self.scale
        return difference / (scale or 1.0)

    @property
    def _told_by_worst(self) -> bool:
        return self.verdict == "not equivalent" or (not self.max_abs and self.worst is not None)


def telling(outputs: Sequence[OutputReport]) -> OutputReport | None:
    """The output that a verdict on all of them is about: of those with the worst verdict, the one with the most
    mismatches, or with the largest difference for its scale where all is well. None without outputs."""
    verdict = min((output.verdict for output in outputs), key=WORST_FIRST.index, default="proven")
    found = [output for output in outputs if output.verdict == verdict]
    if verdict in RIGHT:
        return max(found, key=lambda output: output.share or 0.0, default=None)
    return max(found, key=lambda output: output.mismatches, default=None)


def overall(judgements: Sequence[Judgement]) -> tuple[Verdict, str]:
    """The worst verdict, and what tells it: of several alike, each says its own."""
    verdict = min((judgement.verdict for judgement in judgements), key=WORST_FIRST.index)
    alike = RIGHT if verdict in RIGHT else frozenset((verdict,))
    telling = [judgement.reason for judgement in judgements if judgement.verdict in alike]
    return verdict, "; ".join(telling)


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
    """One of the two artefacts and the runtime that answered for it."""

    path: str
    format: str
    runtime: str
    size: int
    digest: str
    precision: Precision = "unknown"


class Judgement(_Record):
    """The answer to one question.

    Attributes:
        against: what the candidate was compared with, in words: "the reference itself", "the reference with weights
            and activations rounded to float16".
        metrics: the user's own metrics, over all outputs together.
    """

    question: Question
    verdict: Verdict
    reason: str
    against: str
    outputs: tuple[OutputReport, ...] = ()
    metrics: tuple[Figure, ...] = ()


class LayerFigure(_Record):
    """One intermediate value that both sides can show.

    Attributes:
        sqnr_db: Infinity without error; None where the reference's signal is 0 or not finite.
        local_share: the largest difference between the candidate and the reference's node run on the candidate's own
            inputs to it, over what is allowed; above 1 the node itself is at fault. None where it was not asked.
        local_sqnr_db: the SQNR of this node alone, against the unrounded reference's node on the candidate's own inputs
            to it; as `sqnr_db`, and None where it was not asked.
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
        node: the first node that differs; None if none was found.
        candidates: all nodes between the last values that agree and the first that differs, when these are several.
        worst: the worst element of its value.
        input_set: the inputs that show it.
        tapping: what showing intermediate values changed, in words; empty when nothing.
        repro: the folder with the minimal model, its inputs and the command; None if none was written.
        runs: runs of the candidate that it took.
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
        share: of its results, how many are off.
        sqnr_db: of its result, by what saturation alone changes.
    """

    node: str
    op: str
    share: float
    sqnr_db: float


class Saturation(_Record):
    """What ONNX Runtime loses of a quantized ONNX file on x86 CPUs without VNNI, worked out (saturation.py).

    Attributes:
        exact_db, saturated_db: SQNR against the reference of the worst output, as ONNX defines the file, and there.
        nodes: the products that saturate, the one that loses most first.
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
            f"on x86 CPUs without VNNI this file has SQNR {self.saturated_db:.1f} dB where it has {self.exact_db:.1f} "
            f"dB elsewhere: ONNX Runtime's kernels there saturate sums of two products, most at {most}. ARM, LiteRT "
            "and Core ML do not. onnxport quantize --int8 writes weights that cannot (--for-cpu any, its default); so "
            "does --reduce-range"
        )


class Report(_Record):
    """The comparison of a candidate with its reference.

    Attributes:
        saturation: see Saturation; None where nothing saturates, or it was not asked.
        verdict, reason: the worst of the judgements'.
        judgements: fidelity, quality, or first the one and then the other; empty when validation was waived.
        diagnosis: what `debug` found.
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

    @property
    def passed(self) -> bool:
        """Whether the candidate may leave with exit 0."""
        return self.verdict in LEAVES

    @property
    def outputs(self) -> tuple[OutputReport, ...]:
        """The outputs' figures in the first judgement, the one that is about the candidate's own arithmetic."""
        return self.judgements[0].outputs if self.judgements else ()

    @property
    def telling(self) -> OutputReport | None:
        """The output that the verdict is about, see `telling`; None without one."""
        return telling(self.asked.outputs) if self.asked is not None else None

    @property
    def asked(self) -> Judgement | None:
        """The first question whose answer is the verdict; None where nothing was asked."""
        found = (judgement for judgement in self.judgements if judgement.verdict == self.verdict)
        return next(found, self.judgements[0]) if self.judgements else None
