"""A run as lines of text."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterable, Sequence

from onnxport.reports import phrases
from onnxport.reports.run import facts
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.validate.report import (
    Diagnosis,
    InputSet,
    Judgement,
    LayerFigure,
    OutputReport,
)

_GAP = "   "
_ROWS = 20
# Of a diagnosis: values shown around the one at fault, and the worst ones.
_AROUND, _WORST = 3, 5
_HEAD = ("value", "op", "max difference", "of scale", "SQNR dB", "local")
_COLUMNS = ("output", "verdict", "difference", "of scale", "SQNR", phrases.BEYOND_TOLERANCE, "decided by")


def result_lines(run: RunReport, *, detailed: bool = False) -> str:
    """Return a line per artefact; `detailed` adds tables of its outputs' figures."""
    parts = []
    for artifact in run.artifacts:
        parts.append(artifact_line(artifact, run.seconds))
        if detailed:
            parts += [_output_table(judgement) for judgement in artifact.report.judgements]
            for found in facts.tables(artifact):
                parts += ["", found.title, *(f"  {line}" for line in _table(found.columns, found.rows))]
    return "\n".join(parts)


def notes(run: RunReport) -> list[str]:
    """Return a line per note, each once for all functions of a package."""
    found = [
        note
        for each in run.artifacts
        for note in (*each.notes, *(phrases.slowness(each.worth) if each.worth is not None else ()))
    ]
    return [f"note: {note}" for note in dict.fromkeys(found)]


def artifact_line(artifact: ArtifactRecord, seconds: float) -> str:
    """Return an artefact's line: name, size, verdict, worst figure, inputs, time.

    A dropped artefact has no size, and the error that follows the line says why a proof failed.
    """
    report = artifact.report
    latency = artifact.worth and artifact.worth.latency
    reason = report.reason if report.passed else ""
    parts = [
        phrases.text(artifact.label),
        facts.change(artifact) or phrases.size(artifact) if artifact.path else "not kept",
        phrases.speed(latency) if latency else "",
        f"{report.verdict}: {reason}" if reason else report.verdict,
        phrases.worst(report, behind=reason),
        _inputs(report.fed),
        f"{seconds:.1f} s",
    ]
    return _GAP.join(part for part in parts if part)


def _inputs(fed: tuple[InputSet, ...]) -> str:
    if not fed:
        return ""
    firsts = (next(iter(each.shapes.values()), ()) for each in fed)
    batches = sorted({shape[0] for shape in firsts if len(shape) > 1})
    batch = f", batch {' and '.join(map(str, batches))}" if batches else ""
    return phrases.count(len(fed), "input set") + batch


def _output_table(judgement: Judgement) -> str:
    """Return a question, its answer, and the figures per output, the worst first."""
    shown, rest = phrases.cut(phrases.worst_first(judgement.outputs), _ROWS)
    columns, *rows = phrases.columns([_COLUMNS, *map(_cells, shown)], judgement)
    lines = _table(columns, rows) if shown else []
    if rest:
        lines.append(f"... and {phrases.count(rest, 'more output')}")
    for figure in judgement.metrics:
        parts = (phrases.metric_name(figure), phrases.metric_value(figure), phrases.budget(figure))
        lines.append(_GAP.join(part for part in parts if part))
    head = f"{judgement.question}: {judgement.verdict}   {phrases.question(judgement)}"
    return "\n".join(["", head, *textwrap.indent("\n".join(lines), "  ").splitlines()])


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines as wide as the terminal, or 160 columns where there is none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for column in columns:
        table.add_column(column, overflow="fold", min_width=8)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(color_system=None, width=shutil.get_terminal_size((160, 40)).columns - 2)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def _cells(output: OutputReport) -> tuple[str, ...]:
    return (
        phrases.text(output.name),
        output.verdict,
        phrases.number(output.difference),
        phrases.number(output.share),
        phrases.sqnr(output),
        f"{output.mismatches:,} of {output.elements:,}",
        phrases.text(output.rule),
    )


def diagnosis_lines(run: RunReport, *, all_layers: bool = False) -> str:
    """Return the finding, its evidence, and the figures of the values around it (of all with `all_layers`)."""
    found = run.artifacts[0].report.diagnosis
    assert found is not None, "debug always makes one"
    rows = [
        ("value", f"{found.node.value!r}, stage {found.node.stage}" if found.node else ""),
        ("one of", ", ".join(f"{ref.op} {ref.name or ref.value!r}" for ref in found.candidates)),
        ("inputs", found.input_set),
        ("tapping", found.tapping),
        ("repro", f"{found.repro}: see its README.md" if found.repro else ""),
        ("runs", f"{found.runs} of the candidate" if found.runs else ""),
        *(("note", note) for note in found.notes),
    ]
    lines = [found.summary, *(f"  {label:<9}{text}" for label, text in rows if text)]
    if shown := found.layers if all_layers else _relevant(found):
        lines += ["", *(f"  {line}" for line in phrases.align([_HEAD, *map(_layer, shown)], left=2))]
        if left := len(found.layers) - len(shown):
            lines.append(f"  ... and {left} more values, all with --verbose")
    return "\n".join(lines)


def _relevant(found: Diagnosis) -> Sequence[LayerFigure]:
    """Return the values around the one at fault, and the worst few, in the graph's order."""
    at_fault = {ref.value for ref in (*found.candidates, found.node) if ref}
    last = max((i for i, figure in enumerate(found.layers) if figure.node.value in at_fault), default=None)
    shown = (
        set() if last is None else {*range(len(found.layers))[max(last - _AROUND, 0) : last + _AROUND + 1]}
    )
    shown.update(
        sorted(range(len(found.layers)), key=lambda i: _badness(found.layers[i]), reverse=True)[:_WORST]
    )
    return [found.layers[i] for i in sorted(shown)]


def _badness(figure: LayerFigure) -> tuple[float, float]:
    own = figure.local_sqnr_db if figure.local_share is None else None
    sqnr = figure.sqnr_db if own is None else own
    return figure.local_share or 0.0, -(math.inf if sqnr is None else sqnr)


def _layer(figure: LayerFigure) -> tuple[str, ...]:
    """Return a row; the node's own difference is a share of its tolerance, or an SQNR where it has none."""
    local, own = figure.local_share, figure.local_sqnr_db
    if local is None:
        at_node = "" if own is None else _sqnr(own, " dB")
    else:
        at_node = f"{local:.2g}" + (" <" if local > 1 else "")
    return (
        figure.node.value,
        figure.node.op,
        f"{figure.max_abs:.1e}" if figure.max_abs else "0",
        f"{figure.max_abs / figure.scale:.1e}" if figure.scale and figure.max_abs else "",
        "-" if figure.sqnr_db is None else _sqnr(figure.sqnr_db, ""),
        at_node,
    )


def _sqnr(value: float, unit: str) -> str:
    return "exact" if math.isinf(value) else f"{value:.1f}{unit}"
