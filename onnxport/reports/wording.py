"""Verdicts and figures in words and digits, the same in every view that people read.

Names of nodes, tensors and files come from files that nobody vouches for. Here they lose what is no text (control
characters, which a terminal would obey and XML forbids); each view escapes what its own form gives a meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from onnxport.core.errors import printable
from onnxport.reports.run_report import ArtifactRecord, Latency, RunReport, Worth
from onnxport.validate.report import (
    WORST_FIRST,
    Figure,
    Judgement,
    NodeRef,
    OutputReport,
    Question,
    Report,
    Verdict,
    Worst,
)

text = printable  # what views call it

T = TypeVar("T")
Tone = Literal["good", "bad", "unsure", "plain"]

QUESTIONS: Mapping[Question, str] = {
    "fidelity": "Does it compute what an ONNX model with the same roundings computes?",
    "quality": "What did the lower precision cost against the float original?",
}
# "failed" and "not run" are said of a pipeline's cells, of which nothing was judged; what follows them is said of a
# bench's rows, of rows beside a baseline, and of runtimes.
MARKS: Mapping[str, str] = {
    "proven": "✓",
    "not equivalent": "✗",
    "over budget": "✗",
    "inconclusive": "?",
    "unproven": "–",
    "failed": "✗",
    "not run": "–",
    "measured": "✓",
    "not here": "–",
    "refused": "✗",
    "crashed": "✗",
    "hung": "✗",
    "kept": "✓",
    "slower": "✗",
    "unclear": "?",
    "new": "–",
    "all": "✓",
    "part": "◐",
    "none": "✗",
    "unknown": "?",
}
TONES: Mapping[str, Tone] = {
    "proven": "good",
    "not equivalent": "bad",
    "over budget": "bad",
    "inconclusive": "unsure",
    "unproven": "plain",
    "failed": "bad",
    "not run": "plain",
    "measured": "good",
    "not here": "plain",
    "refused": "bad",
    "crashed": "bad",
    "hung": "bad",
    "kept": "good",
    "slower": "bad",
    "unclear": "unsure",
    "new": "plain",
    "all": "good",
    "part": "unsure",
    "none": "bad",
    "unknown": "plain",
}
# Metrics in words; what is missing here has its own name only.
METRICS: Mapping[str, str] = {
    "max_abs": "largest difference",
    "mean_abs": "mean difference",
    "max_of_scale": "largest difference of scale",
    "max_ulps": "largest difference in ULPs",
    "sqnr": "SQNR",
    "cosine": "cosine similarity",
    "top1_agreement": "top-1 agreement",
    "top5_agreement": "top-5 agreement",
    "mean_iou": "mean IoU",
    "mismatch_share": "share of elements that differ",
}


def number(value: float | None) -> str:
    """Three digits; a dash for what does not exist."""
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def exact(value: float) -> str:
    """As many digits as a float32 has."""
    return f"{value:.7g}" if math.isfinite(value) else number(value)


def count(amount: int, thing: str) -> str:
    return f"{amount:,} {thing}{'' if amount == 1 else 's'}"


def human_size(size: int) -> str:
    """Decimal units, as shops and `ls --si` count."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def duration(ms: float | None) -> str:
    """Three digits of microseconds, milliseconds or seconds; empty for what does not exist."""
    if ms is None:
        return ""
    value, unit = (ms, "ms") if 0.0995 <= ms < 999.5 else (ms / 1000, "s") if ms >= 1 else (1000 * ms, "µs")
    digits = (
        f"{value:#.3g}".rstrip(".")
        if 0.0995 <= value < 999.5
        else f"{value:,.0f}"
        if value > 1
        else number(value)
    )
    return f"{digits} {unit}"


def about_duration(ms: float) -> str:
    """`duration` for the axis of a drawing, without decimals that say nothing."""
    if ms < 0.0995:
        return f"{1000 * ms:.3g} µs"
    return f"{ms:.3g} ms" if ms < 999.5 else f"{ms / 1000:,.4g} s"


def percent(share: float) -> str:
    """ "12 %", with a decimal below ten, and "< 0.1 %" of what is more than nothing."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:,.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def about_size(size: float) -> str:
    """`human_size` for the axis of a drawing, without a decimal that says nothing."""
    return human_size(int(size)).replace(".0 ", " ")


def speed(latency: Latency) -> str:
    """How much faster or slower: "2.9x faster (2.7-3.1)"."""
    value, low, high = latency.speedup, latency.low, latency.high
    if latency.confidence and low <= 1 <= high:
        return f"about as fast ({low:.2f}-{high:.2f}x)"
    if value < 1:
        value, low, high = 1 / value, 1 / high, 1 / low
    way = "faster" if latency.speedup >= 1 else "slower"
    spread = f"{low:.1f}-{high:.1f}" if latency.confidence else "one round"
    return f"{value:.1f}x {way} ({spread})"


def timed(latency: Latency) -> str:
    """The whole of it in a sentence."""
    sure = f" with {100 * latency.confidence:.0f} % confidence" if latency.confidence else ""
    return (
        f"{speed(latency)}{sure}: {number(latency.before_ms)} ms before, {number(latency.after_ms)} ms after, "
        f"{count(latency.rounds, 'round')} in {text(latency.runtime)} on this CPU"
    )


def doubts(worth: Worth) -> Iterator[str]:
    """Why a lower precision does not pay, and what would help; or why nobody knows."""
    if worth.why_not:
        yield f"not timed: {text(worth.why_not)}"
    said = "slower" if worth.latency is not None and worth.latency.high < 1 else "hardly faster"
    for finding in worth.findings:
        yield f"{said}: {text(finding.reason)}; what would help: {text(finding.setting)}"


def price(artifact: ArtifactRecord) -> Iterator[str]:
    """What a lower precision gives and takes, a line each: speed, size, accuracy."""
    if artifact.worth is not None and artifact.worth.latency is not None:
        yield timed(artifact.worth.latency)
    yield human_size(artifact.size) + ratio(artifact, ", {:.2f} of the source's size")
    yield from (text(each.reason) for each in artifact.report.judgements if each.question == "quality")


def worst(report: Report) -> str:
    """The figure of the output that the verdict is about; what is not finite is said in words."""
    output = report.telling
    if output is None or output.share is None:
        return ""
    if output.broken:
        return f"{output.broken} at {output.name!r}"
    if not output.share:
        return "" if output.mismatches else "identical to the last bit"
    asked = report.asked if len(report.judgements) > 1 else None
    of = f"{asked.question}: " if asked is not None else ""
    return f"{of}worst {output.share:.1e} of scale at {output.name!r}"


def indices(index: Sequence[int]) -> str:
    """A position in a tensor, cut short where it has more axes than anyone reads."""
    shown = [str(i) for i in index[:8]]
    return f"[{', '.join(shown)}{', …' if len(index) > 8 else ''}]"


def sqnr(output: OutputReport) -> str:
    if output.sqnr_db is not None:
        return f"{number(output.sqnr_db)} dB"
    # The figure knows nothing of companions, which may be where the differences are.
    return "without error on ordinary inputs" if output.difference or output.mismatches else "without error"


def decibel(value: float | None) -> str:
    """A layer's SQNR."""
    return "exact" if value == math.inf else number(value) if value is None else f"{number(value)} dB"


def measured(figure: Figure) -> str:
    """A metric's value with its unit."""
    return f"{number(figure.value)} {text(figure.unit)}".rstrip()


def metric(figure: Figure) -> str:
    """A metric in words, with the name that `--budget` knows it by."""
    name = text(figure.metric)
    return f"{METRICS[name]} ({name})" if name in METRICS else name


def budget(figure: Figure) -> str:
    """Whether the user's limit is kept, empty where there is none."""
    if figure.budget is None:
        return ""
    least = "at least" if figure.better == "higher" else "at most"
    return f"{least} {number(figure.budget)}: {'kept' if figure.met else 'missed'}"


def place(worst: Worst) -> str:
    """The worst element in a sentence."""
    return (
        f"at {indices(worst.index)} the reference says {exact(worst.reference)}, "
        f"the candidate {exact(worst.candidate)} ({text(worst.input_set)})"
    )


def node(ref: NodeRef) -> str:
    """A node as its operator and its name, or the value it makes where it has no name."""
    name = f"'{text(ref.name)}'" if ref.name else f"that makes '{text(ref.value)}'"
    return f"{text(ref.op)} {name}"


# Metrics that every output has as fields, and so are said already.
_SAID = frozenset({"max_abs", "mean_abs", "max_of_scale", "sqnr"})


def further(output: OutputReport, *, budgeted: bool = False) -> list[Figure]:
    """The metrics that say more than the output's fields do; with `budgeted` those too that have a budget."""
    return [
        each for each in output.figures if each.metric not in _SAID or (budgeted and each.budget is not None)
    ]


def figures(output: OutputReport, question: Question = "fidelity") -> Iterator[tuple[str, str]]:
    """All that is known of an output, as pairs of a label and its text; what a tolerance is for belongs to fidelity."""
    held = {each.metric: f", {budget(each)}" for each in output.figures if each.budget is not None}
    tolerated = question == "fidelity"
    yield "decided by", text(output.rule)
    yield "shape", f"{output.dtype} {indices(output.shape)}"
    yield from _told_by_worst(output) if tolerated else ()
    share = number(output.max_abs / (output.scale or 1.0))
    yield (
        METRICS["max_abs"] + (" on ordinary inputs" if _is_elsewhere(output) else ""),
        f"{number(output.max_abs)}{held.get('max_abs', '')}, {share} of scale{held.get('max_of_scale', '')}",
    )
    yield METRICS["mean_abs"], number(output.mean_abs) + held.get("mean_abs", "")
    yield "scale", number(output.scale)
    if tolerated:
        yield "noise of the reference, at most", number(output.noise)
    yield METRICS["sqnr"], sqnr(output) + held.get("sqnr", "")
    if tolerated:
        yield "beyond tolerance", f"{output.mismatches:,} of {count(output.elements, 'element')}"
    for figure in further(output):
        yield metric(figure), measured(figure) + held.get(figure.metric, "")
    if (odd := output.nonfinite) is not None:
        yield "NaN", f"{odd.reference_nan:,} in the reference, {odd.candidate_nan:,} in the candidate"
        yield (
            "infinite",
            f"{odd.reference_infinite:,} in the reference, {odd.candidate_infinite:,} in the candidate",
        )
        yield "not finite on one side only", f"{odd.differing:,}"
    if output.node is not None:
        yield "made by", node(output.node)
    if output.worst is not None:
        yield "worst element", place(output.worst)


def _told_by_worst(output: OutputReport) -> Iterator[tuple[str, str]]:
    """What the tolerance says where it says most: at the worst element."""
    if output.worst is not None:
        share = number(output.worst.difference / (output.worst.scale or output.scale or 1.0))
        yield (
            "difference of the worst element",
            f"{number(output.worst.difference)}, {share} of scale in its set",
        )
        yield "allowed there", number(output.tolerance)
        yield "noise of the reference there", number(output.noise_there)


def _is_elsewhere(output: OutputReport) -> bool:
    """Whether a companion has a larger difference than all ordinary inputs."""
    return output.worst is not None and output.worst.difference > output.max_abs * (1 + 1e-6)


def columns(names: Sequence[str], judgement: Judgement, tolerance: str) -> list[str]:
    """The columns of a table of outputs: the one about the tolerance is for fidelity."""
    return [name for name in names if name != tolerance or judgement.question == "fidelity"]


def worst_first(outputs: Sequence[OutputReport]) -> list[OutputReport]:
    """Failing outputs before the others, and the model's order within."""
    return sorted(outputs, key=lambda output: WORST_FIRST.index(output.verdict))


def cut(things: Sequence[T], most: int) -> tuple[Sequence[T], int]:
    """The first `most`, and how many that leaves out."""
    return things[:most], max(0, len(things) - most)


def verdict_of(run: RunReport) -> Verdict:
    """The worst verdict of a run's artefacts."""
    return min(
        (artifact.report.verdict for artifact in run.artifacts), key=WORST_FIRST.index, default="unproven"
    )


def _proven(report: Report, candidate: str, reference: str) -> str:
    """What was proven, and what the lower precision keeps besides."""
    asked = {each.question: each for each in report.judgements}
    quality = asked.get("quality")
    if quality is None:
        return f"{candidate} computes what {reference} computes"
    if "fidelity" not in asked:  # as reports of earlier versions call what was measured
        return _measured(report, candidate, reference)
    precision = report.candidate.precision
    return f"{candidate} computes what {reference} computes with {precision} rounding, and keeps {_limit(quality)}"


def _measured(report: Report, candidate: str, reference: str) -> str:
    """What was measured: the loss of the lower precision."""
    against = f"{candidate} against {reference}: the loss of accuracy was measured"
    limits = [_limit(each) for each in report.judgements if each.question == "quality"]
    return f"{against} and keeps {limits[0]}" if limits else against


def _limit(quality: Judgement) -> str:
    """Which limit a loss of accuracy was held to."""
    kept = any(f.met for f in (*quality.metrics, *(f for o in quality.outputs for f in o.figures)))
    return "the budget" if kept else "the floor, no budget was given"


def summary(report: Report) -> str:
    """The verdict as a sentence about two files."""
    candidate, reference = text(report.candidate.path), text(report.reference.path)
    sentences: Mapping[Verdict, str] = {
        "proven": _proven(report, candidate, reference),
        "measured": _measured(report, candidate, reference),
        "not equivalent": f"{candidate} does not compute what {reference} computes",
        "over budget": f"{candidate} costs more accuracy against {reference} than it may",
        "inconclusive": f"the inputs prove nothing about {candidate} against {reference}",
        "unproven": f"{candidate} was not proven against {reference}",
    }
    return sentences[report.verdict]


def ratio(artifact: ArtifactRecord, form: str) -> str:
    """The size over the source's, put into `form`; nothing where the source's tells nothing."""
    return "" if artifact.ratio is None else form.format(artifact.ratio)


def size(artifact: ArtifactRecord) -> str:
    """ "4.7 MB (0.99x)"."""
    return human_size(artifact.size) + ratio(artifact, " ({:.2f}x)")
