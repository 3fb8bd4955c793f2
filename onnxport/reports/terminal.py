"""Runs and inspections as lines of text."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from onnxport.formats.artifact import TensorSpec
from onnxport.reports import facts, wording
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.reports.wording import human_size
from onnxport.validate.report import Figure, InputSet, Judgement, OutputReport

if TYPE_CHECKING:
    from onnxport.inspection.report import Inspection, LibrarySize, PortRecord, ReducedBuild

_GAP = "   "


def result_lines(run: RunReport, *, detailed: bool = False) -> str:
    """A line per artefact; `detailed` adds a table of its outputs' figures per question."""
    parts = []
    for artifact in run.artifacts:
        parts.append(result_line(artifact, run.seconds))
        if detailed:
            parts += [output_table(judgement) for judgement in artifact.report.judgements]
            parts += [fact_table(table) for table in facts.tables(artifact)]
    return "\n".join(parts)


def notes(run: RunReport) -> list[str]:
    """A line per note; what is so of several functions of a package is said once."""
    said = [note for each in run.artifacts for note in (*each.notes, *_worth(each))]
    return [f"note: {note}" for note in dict.fromkeys(said)]


def _worth(artifact: ArtifactRecord) -> list[str]:
    """Why a lower precision does not pay, or was not timed."""
    return [] if artifact.worth is None else list(wording.doubts(artifact.worth))


def result_line(artifact: ArtifactRecord, seconds: float) -> str:
    """The one line that says it all: name, size, verdict, worst figure, what it was tried on, time.

    What was dropped has no size, and why a proof failed is left to the error that follows the line.
    """
    report = artifact.report
    parts = [
        wording.text(artifact.label),
        _size(artifact) if artifact.path else "not kept",
        wording.speed(latency) if (latency := artifact.worth and artifact.worth.latency) else "",
        f"{report.verdict}: {report.reason}" if report.passed else report.verdict,
        wording.worst(report),
        _tried_on(report.fed),
        f"{seconds:.1f} s",
    ]
    return _GAP.join(part for part in parts if part)


def _size(artifact: ArtifactRecord) -> str:
    return facts.change(artifact) or wording.size(artifact)


_ROWS = 20
_COLUMNS = ("output", "verdict", "difference", "of scale", "SQNR", "beyond", "decided by")
# What is lost is held to no tolerance.
_TOLERANCE = "beyond"


def output_table(judgement: Judgement) -> str:
    """A question, its answer, and the figures per output, the worst first; as wide as the terminal."""
    shown, rest = wording.cut(wording.worst_first(judgement.outputs), _ROWS)
    columns = wording.columns(_COLUMNS, judgement, _TOLERANCE)
    rows = [dict(zip(_COLUMNS, _cells(output), strict=True)) for output in shown]
    lines = [f"{judgement.question}: {judgement.verdict}   {wording.QUESTIONS[judgement.question]}"]
    if shown:
        lines += _table(columns, [[row[column] for column in columns] for row in rows])
    if rest:
        lines.append(f"... and {wording.count(rest, 'more output')}")
    lines += [f"{_named(figure)}" for figure in judgement.metrics]
    return "\n".join(["", lines[0], *textwrap.indent("\n".join(lines[1:]), "  ").splitlines()])


def fact_table(table: facts.Table) -> str:
    """A list of rows that a stage gave."""
    return "\n".join(["", table.title, *(f"  {line}" for line in _table(table.columns, table.rows))])


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for column in columns:
        table.add_column(column, overflow="fold", min_width=8)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(color_system=None, width=_width())
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def _width() -> int:
    """The terminal's; a log has room, but nobody reads lines without end."""
    return shutil.get_terminal_size((160, 40)).columns - 2


def _cells(output: OutputReport) -> tuple[str, ...]:
    return (
        wording.text(output.name),
        output.verdict,
        wording.number(output.difference),
        wording.number(output.share),
        wording.sqnr(output),
        f"{output.mismatches:,} of {output.elements:,}",
        wording.text(output.rule),
    )


def _named(figure: Figure) -> str:
    parts = (wording.metric(figure), wording.measured(figure), wording.budget(figure))
    return _GAP.join(part for part in parts if part)


def _tried_on(fed: tuple[InputSet, ...]) -> str:
    if not fed:
        return ""
    count = f"{len(fed)} input set{'s' if len(fed) > 1 else ''}"
    firsts = (next(iter(each.shapes.values()), ()) for each in fed)
    batches = sorted({shape[0] for shape in firsts if len(shape) > 1})
    return f"{count}, batch {' and '.join(map(str, batches))}" if batches else count


def inspection_lines(found: Inspection) -> str:
    """A model file's description, a subject per line."""
    made = found.manifest
    rows = {
        "size": f"{human_size(found.size)} in {', '.join(found.files)}",
        "producer": found.producer or "not said",
        "IR version": "" if found.ir_version is None else str(found.ir_version),
        "opset": ", ".join(f"{domain} {version}" for domain, version in found.opsets.items()),
        "parameters": f"{found.parameters:,}",
        "inputs": "\n".join(_port(port) for port in found.inputs),
        "outputs": "\n".join(_port(port) for port in found.outputs),
        "operators": _wrapped(f"{op} {count}" for op, count in found.operators.items()),
        "dynamic": "\n".join(found.dynamic) or "nothing",
        "unusual": "\n".join(found.unusual) or "nothing",
        "made by": "" if made is None else ", ".join(f"{k} {v}" for k, v in made["made_by"].items()),
        "made from": "" if made is None else f"SHA-256 {made['source']}, validation {made['validation']}",
        **(_build(found.build) if found.build else {}),
    }
    lines = [f"{found.path}   {found.format}"]
    for name, text in rows.items():
        lines += [f"  {label:<12}{line}" for label, line in _labelled(name, text)]
    return "\n".join(lines)


def _build(build: ReducedBuild) -> dict[str, str]:
    """What a reduced build of ONNX Runtime needs, and what it saves."""
    kernels, size = build.kernels, build.library
    counted = [f"{build.operators} operators of {', '.join(build.types)}"]
    if kernels:
        counted += [
            f"{kernels.kept} of the {kernels.registered:,} CPU kernels of ONNX Runtime {kernels.version} stay in the "
            f"build, {kernels.used} of them have the types of these operators"
        ]
    if build.lacks:
        counted += [f"{build.config} lacks {', '.join(build.lacks)}: a build by it does not run the model"]
    if not build.config_is_there:
        counted += [f"{build.config} is not there: --required-operators {build.config} writes it"]
    command = textwrap.fill(build.command, width=88, break_on_hyphens=False, subsequent_indent="  ")
    return {
        "needs": "\n".join(counted),
        "build": command.replace("\n", " \\\n"),
        "library": "\n".join((_library(size), *size.sources)),
    }


def _library(size: LibrarySize) -> str:
    least, whole = human_size(size.least), f"in place of {human_size(size.whole)} on {size.platform}"
    if size.most is not None:
        return f"estimated at {least} to {human_size(size.most)} {whole}, from"
    return f"more than {least} {whole}; nobody published one with {', '.join(size.beyond)}; from"


def _labelled(name: str, text: str) -> list[tuple[str, str]]:
    return [("" if index else name, line) for index, line in enumerate(text.splitlines())]


def _port(port: PortRecord) -> str:
    return str(TensorSpec(port.name, port.dtype, port.shape))


def _wrapped(items: Iterable[str]) -> str:
    return textwrap.fill(", ".join(items), width=88, break_long_words=False)
