"""Verdicts and figures in words and digits, the same in every form.

Names of nodes, tensors and files come from untrusted files. Here they lose control characters, which a terminal would
obey and XML forbids; each form escapes the characters that have a meaning in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from onnxport.core.errors import cut_middle, readable
from onnxport.core.shell_words import join
from onnxport.reports.run_report import ArtifactRecord, Latency, RunReport, Worth
from onnxport.validate.report import (
    WORST_FIRST,
    Criterion,
    Figure,
    Judgement,
    NodeRef,
    OutputReport,
    Report,
    Verdict,
    Worst,
)

text = readable

T = TypeVar("T")
_LONGEST_NAME = 100  # characters, in a table
Tone = Literal["good", "bad", "unsure", "plain"]

_QUESTIONS: Mapping[Criterion, str] = {
    "fidelity": "Does it compute what an ONNX model with the same roundings computes?",
    "quality": "How much accuracy does the lower precision lose against the float original?",
    "translation": "Is it the float original, node for node, in lower precision?",
}
# Verdicts; then the states of a pipeline's cells, of a bench's rows, of rows against a baseline, and of runtimes.
_STYLES: Mapping[str, tuple[str, Tone]] = {
    "proven": ("✓", "good"),
    "not equivalent": ("✗", "bad"),
    "over budget": ("✗", "bad"),
    "inconclusive": ("?", "unsure"),
    "unproven": ("–", "plain"),
    "failed": ("✗", "bad"),
    "not run": ("–", "plain"),
    "measured": ("✓", "good"),
    "not here": ("–", "plain"),
    "refused": ("✗", "bad"),
    "crashed": ("✗", "bad"),
    "hung": ("✗", "bad"),
    "kept": ("✓", "good"),
    "slower": ("✗", "bad"),
    "unclear": ("?", "unsure"),
    "new": ("–", "plain"),
    "all": ("✓", "good"),
    "part": ("◐", "unsure"),
    "none": ("✗", "bad"),
    "unknown": ("?", "plain"),
}
MARKS: Mapping[str, str] = {name: mark for name, (mark, _) in _STYLES.items()}
TONES: Mapping[str, Tone] = {name: tone for name, (_, tone) in _STYLES.items()}
# Metrics in words; others have their own name only.
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
# A column of a table of outputs; quality has no tolerance.
BEYOND_TOLERANCE = "beyond tolerance"
# Metrics that are also fields of every output.
_FIELDS = frozenset({"max_abs", "mean_abs", "max_of_scale", "sqnr"})


def number(value: float | None) -> str:
    """Return three digits; a dash for None."""
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def float32_digits(value: float) -> str:
    """Return as many digits as a float32 has."""
    return f"{value:.7g}" if math.isfinite(value) else number(value)


def command_line(command: str, arguments: Sequence[str]) -> str:
    """Return the command line of a run; empty for a run from Python, which has no arguments."""
    return join(("onnxport", command, *arguments)) if arguments else ""


def count(amount: int, thing: str) -> str:
    return f"{amount:,} {thing}{'' if amount == 1 else 's'}"


def cut(things: Sequence[T], most: int) -> tuple[Sequence[T], int]:
    """Return the first `most` things, and the number of the others."""
    return things[:most], max(0, len(things) - most)


def shorten(name: str) -> str:
    """Return a name as text, without the middle of a long one."""
    return cut_middle(text(name), _LONGEST_NAME)


def name_list(names: Sequence[str], most: int = 3) -> str:
    """Return "a, b, c and 12 more"."""
    shown, rest = cut(names, most)
    return ", ".join(map(text, shown)) + (f" and {rest:,} more" if rest else "")


def align(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return lines of columns, the first `left` of them left-aligned and the others right-aligned."""
    rows = [[shorten(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def human_size(size: int) -> str:
    """Return bytes in decimal units."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def duration(ms: float | None) -> str:
    """Return three digits of microseconds, milliseconds or seconds; empty for None."""
    if ms is None:
        return ""
    value, unit = (ms, "ms") if 0.0995 <= ms < 999.5 else (ms / 1000, "s") if ms >= 1 else (1000 * ms, "µs")
    if 0.0995 <= value < 999.5:
        return f"{value:#.3g}".rstrip(".") + f" {unit}"
    return f"{value:,.0f} {unit}" if value > 1 else f"{number(value)} {unit}"


def percent(share: float) -> str:
    """Return "12 %", with a decimal below ten; "< 0.1 %" for less."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:,.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def speed(latency: Latency) -> str:
    """Return the speedup with its interval: "2.9x faster (2.7-3.1)"."""
    value, low, high = latency.speedup, latency.low, latency.high
    if latency.confidence and low <= 1 <= high:
        return f"about as fast ({low:.2f}-{high:.2f}x)"
    if value < 1:
        value, low, high = 1 / value, 1 / high, 1 / low
    way = "faster" if latency.speedup >= 1 else "slower"
    interval = f"{low:.1f}-{high:.1f}" if latency.confidence else "one round"
    return f"{value:.1f}x {way} ({interval})"


def costs(artifact: ArtifactRecord) -> Iterator[str]:
    """Yield speed, size and accuracy of an artefact of lower precision, a line each."""
    latency = artifact.worth.latency if artifact.worth is not None else None
    if latency is not None:
        confidence = f" with {100 * latency.confidence:.0f} % confidence" if latency.confidence else ""
        before, after = f"{number(latency.before_ms)} ms before", f"{number(latency.after_ms)} ms after"
        rounds = f"{count(latency.rounds, 'round')} in {text(latency.runtime)} on this CPU"
        yield f"{speed(latency)}{confidence}: {before}, {after}, {rounds}"
    yield human_size(artifact.size) + size_ratio(artifact, ", {:.2f} of the source's size")
    yield from (text(each.reason) for each in artifact.report.judgements if each.question == "quality")


def slowness(worth: Worth) -> Iterator[str]:
    """Yield why a lower precision is not faster and which setting would help, or why it was not timed."""
    if worth.why_not:
        yield f"not timed: {text(worth.why_not)}"
    result = "slower" if worth.latency is not None and worth.latency.high < 1 else "not faster"
    for finding in worth.findings:
        yield f"{result}: {text(finding.reason)}; what would help: {text(finding.setting)}"


def size_ratio(artifact: ArtifactRecord, form: str) -> str:
    """Return the size over the source's in `form`; empty where the source's says nothing."""
    return "" if artifact.ratio is None else form.format(artifact.ratio)


def size(artifact: ArtifactRecord) -> str:
    """Return "4.7 MB (0.99x)"."""
    return human_size(artifact.size) + size_ratio(artifact, " ({:.2f}x)")


def worst(report: Report, behind: str = "") -> str:
    """Return the figure of the output that decides the verdict; non-finite ones in words.

    Args:
        behind: the text that it stands behind, which may say to which question both belong.
    """
    output = report.telling
    if output is None or output.share is None:
        return ""
    if output.broken:
        return f"{output.broken} at {output.name!r}"
    if not output.share:
        return "" if output.mismatches else "identical to the last bit"
    asked = report.shown if len(report.judgements) > 1 else None
    said = {each.question for each in report.judgements if f"{each.question}: " in behind}
    question = f"{asked.question}: " if asked is not None and said != {asked.question} else ""
    return f"{question}worst {output.share:.1e} of scale at {output.name!r}"


def worst_element(worst: Worst) -> str:
    """Return the worst element in a sentence."""
    return (
        f"at {indices(worst.index)} the reference says {float32_digits(worst.reference)}, "
        f"the candidate {float32_digits(worst.candidate)} ({text(worst.input_set)})"
    )


def indices(index: Sequence[int]) -> str:
    """Return a position in a tensor, or a shape; at most eight axes."""
    shown = [str(i) for i in index[:8]]
    return f"[{', '.join(shown)}{', …' if len(index) > 8 else ''}]"


def sqnr(output: OutputReport) -> str:
    if output.sqnr_db is not None:
        return f"{number(output.sqnr_db)} dB"
    # SQNR leaves companion inputs out, which may have the differences.
    return "without error on ordinary inputs" if output.difference or output.mismatches else "without error"


def layer_sqnr(value: float | None) -> str:
    """Return a layer's SQNR."""
    return "exact" if value == math.inf else number(value) if value is None else f"{number(value)} dB"


def metric_value(figure: Figure) -> str:
    return f"{number(figure.value)} {text(figure.unit)}".rstrip()


def metric_name(figure: Figure) -> str:
    """Return a metric in words, with its name for `--budget`."""
    name = text(figure.metric)
    return f"{METRICS[name]} ({name})" if name in METRICS else name


def budget(figure: Figure) -> str:
    """Return the user's budget and whether the metric is within it; empty where there is none."""
    if figure.budget is None:
        return ""
    least = "at least" if figure.better == "higher" else "at most"
    return f"{least} {number(figure.budget)}: {'kept' if figure.met else 'missed'}"


def node(ref: NodeRef) -> str:
    """Return a node's operator and its name, or the value it makes where it has no name."""
    name = f"'{text(ref.name)}'" if ref.name else f"that makes '{text(ref.value)}'"
    return f"{text(ref.op)} {name}"


def extra_metrics(output: OutputReport, *, budgeted: bool = False) -> list[Figure]:
    """Return the metrics that are no fields of the output; with `budgeted` also those that have a budget."""
    return [
        each
        for each in output.figures
        if each.metric not in _FIELDS or (budgeted and each.budget is not None)
    ]


def output_figures(output: OutputReport, question: Criterion = "fidelity") -> Iterator[tuple[str, str]]:
    """Yield all figures of an output as pairs of a label and its text; the tolerance belongs to fidelity only."""
    budgets = {each.metric: f", {budget(each)}" for each in output.figures if each.budget is not None}
    has_tolerance = question == "fidelity"
    yield "decided by", text(output.rule)
    yield "shape", f"{output.dtype} {indices(output.shape)}"
    yield from _tolerance_figures(output) if has_tolerance else ()
    share = number(output.max_abs / (output.scale or 1.0))
    is_worst_on_companion = output.worst is not None and output.worst.difference > output.max_abs * (1 + 1e-6)
    yield (
        METRICS["max_abs"] + (" on ordinary inputs" if is_worst_on_companion else ""),
        f"{number(output.max_abs)}{budgets.get('max_abs', '')}, {share} of scale{budgets.get('max_of_scale', '')}",
    )
    yield METRICS["mean_abs"], number(output.mean_abs) + budgets.get("mean_abs", "")
    yield "scale", number(output.scale)
    if has_tolerance:
        yield "noise of the reference, at most", number(output.noise)
    yield METRICS["sqnr"], sqnr(output) + budgets.get("sqnr", "")
    if has_tolerance:
        yield BEYOND_TOLERANCE, f"{output.mismatches:,} of {count(output.elements, 'element')}"
    for figure in extra_metrics(output):
        yield metric_name(figure), metric_value(figure) + budgets.get(figure.metric, "")
    if (odd := output.nonfinite) is not None:
        yield "NaN", f"{odd.reference_nan:,} in the reference, {odd.candidate_nan:,} in the candidate"
        infinite = f"{odd.reference_infinite:,} in the reference, {odd.candidate_infinite:,} in the candidate"
        yield "infinite", infinite
        yield "not finite on one side only", f"{odd.differing:,}"
    if output.node is not None:
        yield "made by", node(output.node)
    if output.worst is not None:
        yield "worst element", worst_element(output.worst)


def _tolerance_figures(output: OutputReport) -> Iterator[tuple[str, str]]:
    if output.worst is not None:
        share = number(output.worst.difference / (output.worst.scale or output.scale or 1.0))
        difference = f"{number(output.worst.difference)}, {share} of scale in its set"
        yield "difference of the worst element", difference
        yield "tolerance there", number(output.tolerance)
        yield "noise of the reference there", number(output.noise_there)


def columns(rows: Sequence[Sequence[str]], judgement: Judgement) -> list[list[str]]:
    """Return a table of outputs, its head first, without the tolerance where the question has none."""
    kept = [name != BEYOND_TOLERANCE or judgement.question == "fidelity" for name in rows[0]]
    return [list(itertools.compress(row, kept)) for row in rows]


def worst_first(outputs: Sequence[OutputReport]) -> list[OutputReport]:
    """Return failing outputs before the others, each in the model's order."""
    return sorted(outputs, key=lambda output: WORST_FIRST.index(output.verdict))


def worst_verdict(run: RunReport) -> Verdict:
    """Return the worst verdict of a run's artefacts."""
    verdicts = (artifact.report.verdict for artifact in run.artifacts)
    return min(verdicts, key=WORST_FIRST.index, default="unproven")


def summary(report: Report) -> str:
    """Return the verdict as a sentence about two files."""
    candidate, reference = text(report.candidate.path), text(report.reference.path)
    sentences: Mapping[Verdict, str] = {
        "proven": _proven(report, candidate, reference),
        "measured": _measured(report, candidate, reference),
        "not equivalent": f"{candidate} does not compute what {reference} computes",
        "over budget": f"{candidate} loses more accuracy against {reference} than the budget allows",
        "inconclusive": f"the inputs prove nothing about {candidate} against {reference}",
        "unproven": f"{candidate} was not proven against {reference}",
    }
    return sentences[report.verdict]


def _proven(report: Report, candidate: str, reference: str) -> str:
    judgements = {each.question: each for each in report.judgements}
    quality = judgements.get("quality")
    if quality is None:
        return f"{candidate} computes what {reference} computes"
    translation = judgements.get("translation")
    if translation is not None and translation.verdict == "proven" and "fidelity" not in judgements:
        precision = report.candidate.precision
        return (
            f"{candidate} is {reference} with {precision} quantization in it, node for node, "
            f"and its loss of accuracy keeps {_limit(quality)}"
        )
    if "fidelity" not in judgements:  # reports of earlier versions call a measured loss proven
        return _measured(report, candidate, reference)
    if report.reference.precision == "int8 dynamic":
        without = judgements["fidelity"].against.removeprefix("the reference ")
        how = "" if without == "itself" else f" {without}"
        return f"{candidate} computes what {reference} computes{how}"
    precision = report.candidate.precision
    return f"{candidate} computes what {reference} computes with {precision} rounding, and keeps {_limit(quality)}"


def _measured(report: Report, candidate: str, reference: str) -> str:
    against = f"{candidate} against {reference}: the loss of accuracy was measured"
    limits = [_limit(each) for each in report.judgements if each.question == "quality"]
    return f"{against} and keeps {limits[0]}" if limits else against


def question(judgement: Judgement) -> str:
    """Return what a judgement answers."""
    if judgement.question == "quality" and judgement.against != "the float original":
        return f"How far are its answers from those of {judgement.against}?"
    return _QUESTIONS[judgement.question]


def _limit(quality: Judgement) -> str:
    metrics = (*quality.metrics, *(figure for output in quality.outputs for figure in output.figures))
    return "the budget" if any(figure.met for figure in metrics) else "the floor (no budget was given)"
