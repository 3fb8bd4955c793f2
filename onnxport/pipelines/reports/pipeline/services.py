"""What a run tells the service that it runs in: GitHub Actions' workflow commands, GitLab CI's code quality report.

GitHub reads commands out of what a step prints, on either stream, and shows them at a file's line. GitLab reads files
that the job names as its artifacts, and folds the log's sections.

Sources: actions/runner, src/Runner.Common/ActionCommand.cs; GitLab's documentation, ci/testing/code_quality and
ci/jobs/job_logs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from onnxport.artifact import Staging, writing
from onnxport.errors import OnnxportError
from onnxport.pipelines.outcome import PipelineReport
from onnxport.pipelines.reports import wording
from onnxport.pipelines.reports.pipeline import markdown, matrix, terminal
from onnxport.pipelines.reports.pipeline.checkout import in_checkout, root
from onnxport.pipelines.reports.pipeline.matrix import Fault

Service = Literal["none", "github", "gitlab"]

_SUMMARY = "GITHUB_STEP_SUMMARY"
QUALITY = "gl-code-quality-report.json"
_SECTION = "onnxport_figures"
_SEVERITIES = {
    "inconclusive": "minor",
    "over budget": "major",
    "not equivalent": "critical",
    "failed": "blocker",
}


def tell(service: Service, report: PipelineReport) -> list[str]:
    """Writes what the service reads from files; gives the lines that it reads from the log.

    Raises:
        MachineError: a file cannot be written.
    """
    if service == "github":
        _summarize(report)
        return list(commands(report))
    if service == "gitlab":
        _save_quality(report)
    return []


def commands(report: PipelineReport) -> Iterator[str]:
    """A workflow command for each failure, the worst verdicts first: GitHub shows ten of a step."""
    found = matrix.faults(report)
    for fault in sorted(found, key=_severity, reverse=True):
        kind = "warning" if fault.kind == "inconclusive" else "error"
        yield _command(kind, *_place(fault, report), f"onnxport: {fault.name} {fault.kind}", _told(fault))


def quality(report: PipelineReport) -> str:
    """GitLab's code quality report: a finding for each failure."""
    found = []
    for fault in matrix.faults(report):
        file, line = _place(fault, report)
        identity = json.dumps([fault.name, fault.stage, fault.kind]).encode()
        found.append(
            {
                "description": " ".join(_told(fault).split("\n")),
                "check_name": f"onnxport {fault.kind}",
                "fingerprint": hashlib.sha256(identity).hexdigest(),
                "severity": _SEVERITIES.get(fault.kind, "major"),
                "location": {"path": file, "lines": {"begin": line}},
            }
        )
    return json.dumps(found, indent=2) + "\n"


def figures(report: PipelineReport, seconds: float) -> str:
    """The figures of every stage as a section of GitLab's log that stays folded until somebody opens it.

    Args:
        seconds: Unix time.
    """
    clear, at = "\x1b[0K", int(seconds)
    start = f"{clear}section_start:{at}:{_SECTION}[collapsed=true]\r{clear}figures of every stage"
    return f"{start}\n{terminal.figure_lines(report)}\n{clear}section_end:{at}:{_SECTION}\r{clear}"


def refusals(error: OnnxportError, pipeline: Path) -> Iterator[str]:
    """A workflow command for each fault of the file itself, at the line that its message begins with."""
    for fault in getattr(error, "faults", (error,)):
        place = re.match(r"(?P<file>[^\n]+?):(?P<line>\d+)(?:, |:|$)", fault.what)
        file, line = (place["file"], place["line"]) if place is not None else (str(pipeline), "1")
        yield _command("error", _known(file), int(line), "onnxport: the pipeline is refused", str(fault))


def _told(fault: Fault) -> str:
    lines = matrix.lines(fault.sentence)
    if fault.found:
        lines.append(fault.found)
    if fault.others:
        lines.append(f"not made for it: {', '.join(map(wording.text, fault.others))}")
    return "\n".join(lines)


def _place(fault: Fault, report: PipelineReport) -> tuple[str, int]:
    """File and line as the services know them: from the checkout's root, and without a leading ./"""
    file, line = (fault.at.file, fault.at.line) if fault.at is not None else (report.file, 1)
    return _known(file), line


def _known(file: str) -> str:
    return wording.text(in_checkout(Path(file)).as_posix())


def _command(kind: str, file: str, line: int, title: str, said: str) -> str:
    properties = {"file": file, "line": str(line), "title": title}
    place = ",".join(f"{name}={_property(text)}" for name, text in properties.items())
    message = "\n".join(matrix.lines(said))
    return f"::{kind} {place}::{_data(message)}"


def _severity(fault: Fault) -> int:
    return list(_SEVERITIES).index(fault.kind) if fault.kind in _SEVERITIES else 0


def _data(said: str) -> str:
    return said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(said: str) -> str:
    return _data(wording.text(said)).replace(":", "%3A").replace(",", "%2C")


def _summarize(report: PipelineReport) -> None:
    place = os.environ.get(_SUMMARY)
    if not place:
        return
    with writing(Path(place), f"${_SUMMARY}"), Path(place).open("a", encoding="utf-8") as file:
        file.write(markdown.view(report))


def _save_quality(report: PipelineReport) -> None:
    place = root() / QUALITY
    with Staging(place, "--annotations") as staging:
        staged = staging.folder / place.name
        with writing(place, "--annotations"):
            staged.write_text(quality(report), encoding="utf-8")
        staging.commit({staged: place})
