"""The report as Markdown that GitHub and GitLab render: made for the summary of a CI job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from onnxport.core.errors import OnnxportError
from onnxport.reports import facts, wording
from onnxport.reports.run_report import ArtifactRecord, RunReport, Worth
from onnxport.validate.report import LEAVES, Diagnosis, Figure, InputSet, Judgement, OutputReport

_ROWS = 50  # a job summary is read, not searched
_FEW = 5  # outputs whose every metric is listed; of more, those with a budget
_FED = 10  # sets of inputs that are named
_HEAD = ("output", "verdict", "decided by", "difference", "of scale", "SQNR", "beyond tolerance")
_TOLERANCE = _HEAD[-1]


def view(report: RunReport) -> str:
    parts = [part for artifact in report.artifacts for part in _artifact(artifact)]
    parts += ending(report.command, report.arguments, report.environment, report.seconds)
    return "\n\n".join(parts) + "\n"


def ending(
    command: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float
) -> Iterator[str]:
    """The command, the versions and the time."""
    if arguments:
        # An indented block: no run of backticks in an argument can end it.
        yield f"To reproduce:\n\n    {wording.text(shlex.join(('onnxport', command, *arguments)))}"
    versions = ", ".join(f"{name} {version}" for name, version in environment.items())
    yield f"{seconds:.1f} s" + (f" on {escaped(versions)}" if versions else "")


def failure(error: OnnxportError, command: str) -> str:
    """The summary of a run that ended before there was a verdict."""
    lines = "\n".join(f"    {wording.text(line)}" for line in str(error).splitlines())
    name = f"onnxport {command}".rstrip()
    return f"## ✗ {name} failed, exit {error.exit_code}\n\n{lines}\n"


def escaped(value: object) -> str:
    """`value` as plain text.

    CommonMark lets any ASCII punctuation be escaped; these are what Markdown, tables, bare links, emoji codes and
    formulas are made with.
    """
    return re.sub(r"([\\`*_\[\]<>|~!#&$:@(){}^]|(?<=www)\.)", r"\\\1", wording.text(value))


def _artifact(artifact: ArtifactRecord) -> Iterator[str]:
    report = artifact.report
    mark = wording.MARKS[report.verdict]
    yield f"## {mark} {escaped(artifact.label)}: {report.verdict}"
    size = escaped(facts.change(artifact)) or wording.human_size(artifact.size) + wording.ratio(
        artifact, " ({:.2f}x of the source)"
    )
    kept = "" if artifact.path else ", not kept"
    yield (
        f"**{escaped(wording.summary(report))}**: {escaped(report.reason)}\n\n"
        f"{size}{kept}, {wording.count(len(report.fed), 'input set')}"
    )
    yield from judged(artifact)


def judged(artifact: ArtifactRecord) -> Iterator[str]:
    """Everything below an artefact's verdict."""
    report = artifact.report
    if artifact.worth is not None:
        yield from _worth(artifact, artifact.worth)
    for judgement in report.judgements:
        yield from _judgement(judgement)
    if report.diagnosis is not None:
        yield from _diagnosis(report.diagnosis)
    for found in facts.tables(artifact):
        yield f"### {escaped(found.title).capitalize()}"
        yield table([*map(escaped, found.columns)], [[*map(escaped, row)] for row in found.rows])
    if report.fed:
        yield _fed(report.fed)
    if artifact.notes:
        yield "\n".join(f"- note: {escaped(note)}" for note in artifact.notes)


def _worth(artifact: ArtifactRecord, worth: Worth) -> Iterator[str]:
    yield "### Is it worth it?"
    yield "\n".join(f"- {escaped(line)}" for line in (*wording.price(artifact), *wording.doubts(worth)))


def _judgement(judgement: Judgement) -> Iterator[str]:
    yield f"### {judgement.question.capitalize()}: {judgement.verdict}"
    question = wording.QUESTIONS[judgement.question]
    yield f"{question} Compared with {escaped(judgement.against)}."
    shown, rest = wording.cut(wording.worst_first(judgement.outputs), _ROWS)
    if shown:
        columns = wording.columns(_HEAD, judgement, _TOLERANCE)
        rows = [dict(zip(_HEAD, _row(output), strict=True)) for output in shown]
        yield table(columns, [[row[column] for column in columns] for row in rows])
    if rest:
        yield f"… and {wording.count(rest, 'more output')}, the worst are shown"
    yield from _worst(shown)
    metrics = [(figure, "all outputs") for figure in judgement.metrics]
    few = len(shown) <= _FEW
    metrics += [
        (figure, output.name)
        for output in shown
        for figure in wording.further(output, budgeted=True)
        if few or figure.budget is not None
    ]
    if metrics:
        yield table(("metric", "of", "value", "budget"), [_metric(figure, of) for figure, of in metrics])


def _worst(outputs: Sequence[OutputReport]) -> Iterator[str]:
    """The worst element of each output that is not proven."""
    lines = [
        f"- {escaped(output.name)}: {escaped(wording.place(output.worst))}"
        for output in outputs
        if output.verdict not in LEAVES and output.worst is not None
    ]
    if lines:
        yield "Worst elements:\n\n" + "\n".join(lines)


def _diagnosis(found: Diagnosis) -> Iterator[str]:
    yield f"### Where they begin to differ\n\n{escaped(found.summary)}"
    lines = {
        "node": f"{wording.node(found.node)}, stage {found.node.stage}" if found.node else "",
        "worst element": wording.place(found.worst) if found.worst else "",
        "to reproduce it alone": found.repro or "",
    }
    items = [f"- {label}: {escaped(said)}" for label, said in lines.items() if said]
    if items:
        yield "\n".join(items)


def _fed(fed: Sequence[InputSet]) -> str:
    """The sets of inputs by name, with their shapes where these tell something new."""
    shown, rest = wording.cut(fed, _FED)
    shapes = [
        ", ".join(f"{name} {wording.indices(shape)}" for name, shape in each.shapes.items()) for each in shown
    ]
    said = [
        escaped(each.label if number and of == shapes[number - 1] else f"{each.label}: {of}")
        for number, (each, of) in enumerate(zip(shown, shapes, strict=True))
    ]
    own = "your samples" if any(each.source == "samples" for each in fed) else "generated inputs"
    more = f"; and {wording.count(rest, 'more set')}" if rest else ""
    return f"Fed with {own}: {'; '.join(said)}{more}"


def _row(output: OutputReport) -> Sequence[str]:
    return (
        escaped(output.name),
        f"{wording.MARKS[output.verdict]} {output.verdict}",
        escaped(output.rule),
        wording.number(output.difference),
        wording.number(output.share),
        wording.sqnr(output),
        f"{output.mismatches:,} of {output.elements:,}",
    )


def _metric(figure: Figure, of: str) -> Sequence[str]:
    return (
        escaped(wording.metric(figure)),
        escaped(of),
        escaped(wording.measured(figure)),
        wording.budget(figure) or "none",
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Of cells that are escaped already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
