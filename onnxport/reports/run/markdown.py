"""The Markdown summary of a run: the verdict, a table of outputs, and the node at fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.reports import phrases
from onnxport.reports.markdown import ending, escape, note_lines, table
from onnxport.reports.run import facts
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.validate.report import LEAVES, Diagnosis, InputSet, Judgement, OutputReport

_ROWS = 50
_FEW_OUTPUTS = 5  # every metric is listed; of more outputs, metrics with a budget
_INPUT_SETS = 10  # that are named
_HEAD = ("output", "verdict", "decided by", "difference", "of scale", "SQNR", phrases.BEYOND_TOLERANCE)


def view(report: RunReport) -> str:
    parts = [part for artifact in report.artifacts for part in _artifact(artifact)]
    parts += ending(report.command, report.arguments, report.environment, report.seconds)
    return "\n\n".join(parts) + "\n"


def _artifact(artifact: ArtifactRecord) -> Iterator[str]:
    report = artifact.report
    yield f"## {phrases.MARKS[report.verdict]} {escape(artifact.label)}: {report.verdict}"
    size = escape(facts.change(artifact)) or phrases.human_size(artifact.size) + phrases.size_ratio(
        artifact, " ({:.2f}x of the source)"
    )
    kept = "" if artifact.path else ", not kept"
    yield (
        f"**{escape(phrases.summary(report))}**: {escape(report.reason)}\n\n"
        f"{size}{kept}, {phrases.count(len(report.fed), 'input set')}"
    )
    yield from details(artifact)


def details(artifact: ArtifactRecord) -> Iterator[str]:
    """Yield everything below an artefact's verdict."""
    report = artifact.report
    if artifact.worth is not None:
        yield "### Is it worth it?"
        lines = (*phrases.costs(artifact), *phrases.slowness(artifact.worth))
        yield "\n".join(f"- {escape(line)}" for line in lines)
    for judgement in report.judgements:
        yield from _judgement(judgement)
    if report.diagnosis is not None:
        yield from _diagnosis(report.diagnosis)
    for found in facts.tables(artifact):
        yield f"### {escape(found.title).capitalize()}"
        yield table([*map(escape, found.columns)], [[*map(escape, row)] for row in found.rows])
    if report.fed:
        yield _inputs(report.fed)
    if artifact.notes:
        yield "\n".join(note_lines(artifact.notes))


def _judgement(judgement: Judgement) -> Iterator[str]:
    yield f"### {judgement.question.capitalize()}: {judgement.verdict}"
    question = phrases.question(judgement)
    yield f"{question} Compared with {escape(judgement.against)}."
    shown, rest = phrases.cut(phrases.worst_first(judgement.outputs), _ROWS)
    if shown:
        head, *rows = phrases.columns([_HEAD, *map(_row, shown)], judgement)
        yield table(head, rows)
    if rest:
        yield f"… and {phrases.count(rest, 'more output')}; the worst are shown"
    yield from _worst_elements(shown)
    few = len(shown) <= _FEW_OUTPUTS
    metrics = [
        *((figure, "all outputs") for figure in judgement.metrics),
        *(
            (figure, output.name)
            for output in shown
            for figure in phrases.extra_metrics(output, budgeted=True)
            if few or figure.budget is not None
        ),
    ]
    lines = [
        (
            *(escape(text) for text in (phrases.metric_name(figure), of, phrases.metric_value(figure))),
            phrases.budget(figure) or "none",
        )
        for figure, of in metrics
    ]
    if lines:
        yield table(("metric", "of", "value", "budget"), lines)


def _worst_elements(outputs: Sequence[OutputReport]) -> Iterator[str]:
    lines = [
        f"- {escape(output.name)}: {escape(phrases.worst_element(output.worst))}"
        for output in outputs
        if output.verdict not in LEAVES and output.worst is not None
    ]
    if lines:
        yield "Worst elements:\n\n" + "\n".join(lines)


def _diagnosis(found: Diagnosis) -> Iterator[str]:
    yield f"### Where they begin to differ\n\n{escape(found.summary)}"
    lines = {
        "node": f"{phrases.node(found.node)}, stage {found.node.stage}" if found.node else "",
        "worst element": phrases.worst_element(found.worst) if found.worst else "",
        "to reproduce it alone": found.repro or "",
    }
    items = [f"- {label}: {escape(text)}" for label, text in lines.items() if text]
    if items:
        yield "\n".join(items)


def _inputs(fed: Sequence[InputSet]) -> str:
    """Return the sets of inputs by name, with their shapes where these differ from the set before."""
    shown, rest = phrases.cut(fed, _INPUT_SETS)
    shapes = [
        ", ".join(f"{name} {phrases.indices(shape)}" for name, shape in each.shapes.items()) for each in shown
    ]
    names = [
        escape(each.label if number and of == shapes[number - 1] else f"{each.label}: {of}")
        for number, (each, of) in enumerate(zip(shown, shapes, strict=True))
    ]
    own = "your samples" if any(each.source == "samples" for each in fed) else "generated inputs"
    more = f"; and {phrases.count(rest, 'more set')}" if rest else ""
    return f"Compared on {own}: {'; '.join(names)}{more}"


def _row(output: OutputReport) -> Sequence[str]:
    return (
        escape(output.name),
        f"{phrases.MARKS[output.verdict]} {output.verdict}",
        escape(output.rule),
        phrases.number(output.difference),
        phrases.number(output.share),
        phrases.sqnr(output),
        f"{output.mismatches:,} of {output.elements:,}",
    )
