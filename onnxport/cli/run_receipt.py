"""Leave the receipt of a run that passed (cli/receipts.py), if its notes vouch for everything that it depends on."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import onnxport
from onnxport.cli import receipts
from onnxport.cli.output import Output
from onnxport.cli.run_output import Reporting
from onnxport.cli.run_progress import Lines
from onnxport.core.errors import PROVEN
from onnxport.core.reads import Reads, distributions, stamp_from, tree
from onnxport.formats.remote import has_copies
from onnxport.pipelines.cache.entries import ENTRY

if TYPE_CHECKING:
    from onnxport.cli.receipts import Said
    from onnxport.reports.pipeline_report import CellRecord, PipelineReport


def begin() -> Reads:
    """Return the notes of a run that is about to start: so far onnxport's own files and the installed packages."""
    reads = Reads()
    reads.look(tree, os.path.dirname(os.path.abspath(onnxport.__file__)))
    reads.look(distributions, tuple(sys.path))
    return reads


def leave(reads: Reads, report: PipelineReport, output: Output, reporting: Reporting) -> None:
    """Leave the receipt of a run unless anything failed, is in doubt or would be done again."""
    if report.exit_code != PROVEN or not reads.variables.isdisjoint(receipts.IDLE_VARIABLES):
        return
    if has_copies() or any(map(_is_timed, report.cells)):  # copies of URLs; figures of this moment's machine
        return
    files = reads.settle()
    if files is not None:
        try:
            entries = {path: stamp for entry in reads.kept for path, stamp in _stamps_of_entry(entry)}
        except OSError:  # another run dropped one
            return
        receipts.leave({**files, **entries}, reads.kept, _said_next_time(report, output, reporting))


def _is_timed(cell: CellRecord) -> bool:
    """Return whether a limit of the artefact needs its time or memory."""
    return cell.latency is not None or any("size" not in limit.name for limit in cell.limits)


def _stamps_of_entry(folder: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the stamp of each file in an entry of the cache.

    That of a product lacks the last part, which the links of other runs change: what they deliver is checked anyway.
    """
    return [
        (path, stamp_from(os.stat(path))[: None if name == ENTRY else -1])
        for place, _, names in os.walk(folder)
        for name in names
        for path in [os.path.join(place, name)]
    ]


def _said_next_time(report: PipelineReport, output: Output, reporting: Reporting) -> list[Said]:
    """Return what a run prints that finds all products of `report` in the cache."""
    nodes = tuple(node.model_copy(update={"status": "cached", "seconds": 0.0}) for node in report.nodes)
    again = report.model_copy(update={"nodes": nodes, "seconds": 0.0})
    with redirect_stderr(StringIO()) as progress:
        if not output.quiet and not output.json:
            lines = Lines()
            lines.begun(nodes, 1)
            for node in nodes:
                lines.node(node)
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        reporting.show(again, output)
    return [
        ("stderr", progress.getvalue()),
        ("stdout", stdout.getvalue()),
        ("stderr", stderr.getvalue()),
    ]
