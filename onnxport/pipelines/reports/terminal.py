"""Runs and inspections as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnxport.artifact import TensorSpec
from onnxport.pipelines.report import ArtifactRecord, RunReport
from onnxport.validate.report import InputSet, Report

if TYPE_CHECKING:
    from onnxport.inspection.record import Inspection, PortRecord

_GAP = "   "


def result_lines(run: RunReport) -> str:
    return "\n".join(result_line(artifact, run.seconds) for artifact in run.artifacts)


def notes(run: RunReport) -> list[str]:
    return [f"note: {note}" for artifact in run.artifacts for note in artifact.notes]


def result_line(artifact: ArtifactRecord, seconds: float) -> str:
    """The one line that says it all: name, size, verdict, worst figure, what it was tried on, time.

    What was dropped has no size, and why a proof failed is left to the error that follows the line.
    """
    report = artifact.report
    parts = [
        artifact.path or report.candidate.path,
        f"{human_size(artifact.size)} ({artifact.ratio:.2f}x)" if artifact.path else "not kept",
        f"{report.verdict}: {report.reason}" if report.passed else report.verdict,
        _worst(report),
        _tried_on(report.fed),
        f"{seconds:.1f} s",
    ]
    return _GAP.join(part for part in parts if part)


def human_size(size: int) -> str:
    """Decimal units, as shops and `ls --si` count."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _worst(report: Report) -> str:
    if not report.outputs:
        return ""
    shares = {output.name: output.max_abs / (output.scale or 1.0) for output in report.outputs}
    name = max(shares, key=lambda name: shares[name])
    if not shares[name]:
        return "identical to the last bit"
    return f"worst {shares[name]:.1e} of scale at {name!r}"


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
    }
    lines = [f"{found.path}   {found.format}"]
    for name, text in rows.items():
        lines += [f"  {label:<12}{line}" for label, line in _labelled(name, text)]
    return "\n".join(lines)


def _labelled(name: str, text: str) -> list[tuple[str, str]]:
    return [("" if index else name, line) for index, line in enumerate(text.splitlines())]


def _port(port: PortRecord) -> str:
    return str(TensorSpec(port.name, port.dtype, port.shape))


def _wrapped(items: Iterable[str]) -> str:
    return textwrap.fill(", ".join(items), width=88, break_long_words=False)
