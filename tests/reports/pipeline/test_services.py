"""The annotations for GitHub Actions and GitLab CI, parsed as their own runners do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxport.cli.error_output import inert, inert_document
from onnxport.core.errors import BadPipelineError, UsageError
from onnxport.reports.pipeline import services
from onnxport.reports.pipeline_report import PipelineReport
from tests.reports.pipeline.handmade import hostile, lone, lost, mixed


def command(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as actions/runner's ActionCommand.TryParseV2 reads it."""
    assert "\n" not in line
    assert "\r" not in line
    head, _, data = line.removeprefix("::").partition("::")
    assert line.startswith("::")
    name, _, rest = head.partition(" ")
    properties = dict(pair.split("=", 1) for pair in rest.split(",") if pair)
    return name, {key: unescaped(value, ":,") for key, value in properties.items()}, unescaped(data)


def unescaped(text: str, further: str = "") -> str:
    for each in ("\r", "\n", *further, "%"):
        text = text.replace(f"%{ord(each):02X}", each)
    return text


def told(run: PipelineReport) -> list[str]:
    """The lines for GitHub."""
    return services.annotate("github", services.findings(run), str)


def test_failures_are_commands_at_their_lines_the_worst_first() -> None:
    found = [command(line) for line in told(mixed())]
    assert [(name, said["file"], said["line"], said["title"]) for name, said, _ in found] == [
        ("error", "ci/pipeline.yaml", "17", "onnxport: digits/apple failed"),
        ("error", "ci/pipeline.yaml", "6", "onnxport: digits/int8 not equivalent"),
        ("error", "ci/pipeline.yaml", "14", "onnxport: digits/small over budget"),
    ]
    assert "18 % too much" in found[2][2]
    assert found[0][2].count("\n") == 2
    assert found[1][2].splitlines()[1:] == [
        "Conv '/stem/conv1/Conv' is the first node that differs",
        "not made because of it: digits/tiny/int8",
    ]


def test_a_run_that_passes_says_nothing() -> None:
    assert told(lone()) == []


def test_a_name_that_would_end_the_command_stays_in_its_title() -> None:
    run = lost()
    nodes = tuple(each.model_copy(update={"name": f"{each.name}::x,y=z%3A"}) for each in run.nodes)
    cells = tuple(each.model_copy(update={"node": f"{each.node}::x,y=z%3A"}) for each in run.cells)
    lines = told(run.model_copy(update={"nodes": nodes, "cells": cells}))
    titles = [command(line)[1]["title"] for line in lines]
    assert titles[0] == "onnxport: digits/c::x,y=z%3A failed"


def test_names_from_files_cannot_leave_their_place_in_a_command() -> None:
    for line in told(hostile()):
        name, properties, _ = command(line)
        assert name == "error"
        assert set(properties) == {"file", "line", "title"}
        assert properties["line"] == "3"


@pytest.mark.parametrize(
    "line",
    [
        "::error::forged",
        "  ::set-output name=a::b",
        "ok ##[error]forged",
        "::stop-commands::x",
        "\t::add-mask::e",
    ],
)
def test_what_we_print_is_no_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inert(line) == line
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    shown = inert(f"first\n{line}\nlast")
    assert not any(each.lstrip().startswith("::") or "##[" in each for each in shown.split("\n"))
    assert len(shown.split("\n")) == 3


def test_a_json_document_stays_the_same_without_a_command_in_it() -> None:
    value = {"##[error]x": ["::error::y", "##[group]"]}
    document = inert_document(json.dumps(value, indent=1))
    assert json.loads(document) == value
    assert "##[" not in document


def test_refused_file_is_annotated_at_the_line_that_the_message_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = UsageError(
        "ci/pipeline.yaml:7, targets.phone: there is no target 'orrt'", fix="did you mean 'ort'?"
    )
    found = services.refusal_findings(error, Path("ci/pipeline.yaml"))
    (line,) = services.annotate("github", found, str)
    name, said, message = command(line)
    assert (name, said["file"], said["line"]) == ("error", "ci/pipeline.yaml", "7")
    assert message.endswith("did you mean 'ort'?")
    (other,) = services.refusal_findings(UsageError("no such thing"), Path("p.yaml"))
    assert (other.file, other.line) == ("p.yaml", 1)
    several = BadPipelineError("p.yaml has 2 faults:", [error, UsageError("p.yaml:9: another")])
    both = services.refusal_findings(several, Path("p.yaml"))
    assert [each.line for each in both] == [7, 9]
    services.annotate("gitlab", both, str)
    assert len({each["fingerprint"] for each in json.loads(Path(services.QUALITY).read_text())}) == 2


def test_summary_is_appended_to_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "summary.md"
    file.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    services.annotate("github", [], lambda: "## after\n")
    assert file.read_text().startswith("# before\n## after\n")


def test_gitlab_finds_a_report_of_code_quality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    assert services.annotate("gitlab", services.findings(lost()), str) == []
    found = json.loads((tmp_path / services.QUALITY).read_text())
    assert [each["severity"] for each in found] == ["blocker", "critical", "critical"]
    assert len({each["fingerprint"] for each in found}) == 3
    for each in found:
        assert each["location"] == {"path": "sub/ci/pipeline.yaml", "lines": {"begin": 12}}
        assert each["description"]
        assert each["check_name"]


def test_gitlabs_log_has_one_section_that_is_folded() -> None:
    said = services.figure_section(hostile(), 1795351488.7)
    markers = re.findall(r"\x1b\[0Ksection_(start|end):(\d+):(\w+)(\[collapsed=true\])?\r\x1b\[0K", said)
    assert [(kind, at, name) for kind, at, name, _ in markers] == [
        ("start", "1795351488", "onnxport_figures"),
        ("end", "1795351488", "onnxport_figures"),
    ]
    assert said.count("\x1b") == said.count("\r") * 2 == 4
