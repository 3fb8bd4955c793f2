"""What a run tells the service that it runs in: GitHub Actions' workflow commands, GitLab CI's code quality report.

GitHub reads commands out of what a step prints, on either stream, and shows them at a file's line; names out of files
must not become commands (`inert`). GitLab reads files that the job names as its artifacts, and folds the log's sections.

Sources: actions/runner, src/Runner.Common/ActionCommand.cs; GitLab's documentation, ci/testing/code_quality and
ci/jobs/job_logs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from onnxport.artifact import Staging, writing
from onnxport.pipelines.outcome import PipelineReport
from onnxport.pipelines.reports import wording
from onnxport.pipelines.reports.pipeline import markdown, matrix
from onnxport.pipelines.reports.pipeline.checkout import in_checkout, root
from onnxport.pipelines.reports.pipeline.matrix import Fault

Service = Literal["none", "github", "gitlab"]

# The variables by which services say that a command runs in them.
_SIGNS: Mapping[Service, str] = {"github": "GITHUB_ACTIONS", "gitlab": "GITLAB_CI"}
_SUMMARY = "GITHUB_STEP_SUMMARY"
QUALITY = "gl-code-quality-report.json"
_SEVERITIES = {"inconclusive": "minor", "over budget": "major", "not equivalent": "critical", "failed": "blocker"}


def detected(environment: Mapping[str, str]) -> Service:
    """The service that this process runs in."""
    return next((each for each, sign in _SIGNS.items() if environment.get(sign) == "true"), "none")


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
    for fault in sorted(found, key=lambda fault: _severity(fault), reverse=True):
        kind = "warning" if fault.kind == "inconclusive" else "error"
        file, line = _place(fault, report)
        properties = {"file": file, "line": str(line), "title": f"onnxport: {fault.name} {fault.kind}"}
        said = ",".join(f"{name}={_property(text)}" for name, text in properties.items())
        yield f"::{kind} {said}::{_data(_told(fault))}"


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


def section(name: str, title: str, seconds: float, body: str) -> str:
    """A part of GitLab's log that is folded until somebody opens it; `seconds` are Unix time."""
    at = int(seconds)
    clear = "\x1b[0K"
    start = f"{clear}section_start:{at}:{name}[collapsed=true]\r{clear}{wording.text(title)}"
    return f"{start}\n{body}\n{clear}section_end:{at}:{name}\r{clear}"


def inert(line: str) -> str:
    """`line` as one that GitHub's runner takes for no command: those begin a line with ::, or hold ##[ anywhere."""
    line = line.replace("##[", "## [")
    return f"> {line}" if line.lstrip().startswith("::") else line


def _told(fault: Fault) -> str:
    lines = matrix.lines(fault.sentence)
    if fault.onnx_node:
        lines.append(f"ONNX node: {fault.onnx_node}")
    others = [wording.text(name) for name in fault.lost if name != fault.name]
    if others:
        lines.append(f"not made for it: {', '.join(others)}")
    return "\n".join(lines)


def _place(fault: Fault, report: PipelineReport) -> tuple[str, int]:
    """File and line as the services know them: from the checkout's root, and without a leading ./"""
    file, line = (fault.at.file, fault.at.line) if fault.at is not None else (report.file, 1)
    return wording.text(in_checkout(Path(file)).as_posix()), line


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
