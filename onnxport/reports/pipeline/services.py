"""Annotations for the CI service of a run: GitHub Actions' workflow commands, GitLab CI's code quality report.

GitHub reads commands from what a step prints, on either stream, and shows them at a file's line. GitLab reads files
that the job names as its artifacts, and folds the log's sections.

Sources: actions/runner, src/Runner.Common/ActionCommand.cs; GitLab's documentation, ci/testing/code_quality and
ci/jobs/job_logs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onnxport.core.errors import OnnxportError
from onnxport.core.urls import shown
from onnxport.formats.artifact import Staging, writing
from onnxport.reports import phrases
from onnxport.reports.pipeline import matrix, terminal
from onnxport.reports.pipeline.matrix import Fault
from onnxport.reports.pipeline_report import PipelineReport

# They name the root in GitHub Actions and GitLab CI.
_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


def root() -> Path:
    """Return the service's checkout if this runs inside one, else the current folder."""
    here = Path.cwd()
    for name in _VARIABLES:
        folder = Path(os.environ.get(name) or "")
        if folder.is_absolute() and here.is_relative_to(folder.resolve()):
            return folder.resolve()
    return here


def in_checkout(path: Path) -> Path:
    """Return `path` relative to the checkout's root; absolute where it lies elsewhere."""
    full = Path(os.path.normpath(Path.cwd() / path))
    return full.relative_to(root()) if full.is_relative_to(root()) else full


Service = Literal["none", "github", "gitlab"]

_SUMMARY = "GITHUB_STEP_SUMMARY"
QUALITY = "gl-code-quality-report.json"
_SECTION = "onnxport_figures"
# Kind of finding, the worst last, to GitLab's severity.
_GITLAB = {
    "inconclusive": "minor",
    "over budget": "major",
    "not equivalent": "critical",
    "failed": "blocker",
    "refused": "blocker",
}
_SEVERITIES = tuple(_GITLAB)


@dataclass(frozen=True)
class Finding:
    """A message at a line of a file, from the checkout's root; `kind` as a Fault's, or "refused"."""

    title: str
    kind: str
    message: str
    file: str
    line: int


def findings(report: PipelineReport) -> list[Finding]:
    """Return a finding for each failure of a run, the worst first: GitHub shows ten of a step."""
    found = []
    for fault in matrix.faults(report):
        file, line = (fault.at.file, fault.at.line) if fault.at is not None else (report.file, 1)
        title = f"onnxport: {fault.name} {fault.kind}"
        found.append(Finding(title, fault.kind, _message(fault), _path(file), line))
    return sorted(found, key=lambda each: _SEVERITIES.index(each.kind), reverse=True)


def refusal_findings(error: OnnxportError, pipeline: Path) -> list[Finding]:
    """Return a finding for each error in the file itself, at the line that its message begins with."""
    found = []
    for fault in getattr(error, "faults", (error,)):
        place = re.match(r"(?P<file>[^\n]+?):(?P<line>\d+)(?:, |:|$)", fault.what)
        file, line = (place["file"], place["line"]) if place is not None else (str(pipeline), "1")
        title = "onnxport: the pipeline is refused"
        found.append(Finding(title, "refused", str(fault), _path(file), int(line)))
    return found


def annotate(service: Service, found: Sequence[Finding], summary: Callable[[], str]) -> list[str]:
    """Write the files that the service reads; return the lines that it reads from the log.

    `summary` returns Markdown of the run. MachineError if a file cannot be written.
    """
    if service == "github":
        _summarize(summary())
        return [_command(each) for each in found]
    if service == "gitlab":
        _save_quality(found)
    return []


def figure_section(report: PipelineReport, seconds: float) -> str:
    """Return the figures of every stage as a folded section of GitLab's log; `seconds` is Unix time."""
    clear, at = "\x1b[0K", int(seconds)
    start = f"{clear}section_start:{at}:{_SECTION}[collapsed=true]\r{clear}figures of every stage"
    return f"{start}\n{terminal.figure_lines(report)}\n{clear}section_end:{at}:{_SECTION}\r{clear}"


def _message(fault: Fault) -> str:
    lines = matrix.lines(fault.sentence)
    if fault.found:
        lines.append(fault.found)
    if fault.others:
        lines.append(f"not made because of it: {', '.join(map(phrases.text, fault.others))}")
    return "\n".join(lines)


def _path(file: str) -> str:
    return phrases.text(in_checkout(Path(file)).as_posix())


def _command(found: Finding) -> str:
    kind = "warning" if found.kind == "inconclusive" else "error"
    properties = {"file": found.file, "line": str(found.line), "title": found.title}
    place = ",".join(f"{name}={_property(text)}" for name, text in properties.items())
    message = "\n".join(matrix.lines(found.message))
    return f"::{kind} {place}::{_data(message)}"


def _quality(found: Finding) -> dict[str, Any]:
    # The text of a failure has figures, which change from run to run; errors in a file differ only in their text.
    identity = (found.title, found.file, *([found.message] if found.kind == "refused" else []))
    return {
        "description": " ".join(matrix.lines(found.message)),
        "check_name": f"onnxport {found.kind}",
        "fingerprint": hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        "severity": _GITLAB[found.kind],
        "location": {"path": found.file, "lines": {"begin": found.line}},
    }


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(phrases.text(text)).replace(":", "%3A").replace(",", "%2C")


def _summarize(summary: str) -> None:
    place = os.environ.get(_SUMMARY)
    if not place:
        return
    with writing(Path(place), f"${_SUMMARY}"), Path(place).open("a", encoding="utf-8") as file:
        file.write(shown(summary))


def _save_quality(found: Sequence[Finding]) -> None:
    place = root() / QUALITY
    with Staging(place, "--annotations") as staging:
        staged = staging.folder / place.name
        with writing(place, "--annotations"):
            staged.write_text(
                shown(json.dumps(list(map(_quality, found)), indent=2)) + "\n", encoding="utf-8"
            )
        staging.commit({staged: place})
