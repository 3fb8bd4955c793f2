"""`onnxport run --report`: which files are written and when, and the annotations for the CI service."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from onnxport.cli.commands import cli
from onnxport.core.errors import BAD_INPUT, USAGE

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
targets:
  server: {to: ort}
  small:
    to: ort
    max_size: 1kB
"""
FORMS = {"index.html", "report.json", "junit.xml", "report.sarif", "summary.md"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DIGITS, tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY", "GITLAB_CI", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments: str) -> int:
    code: int = cli.main(["run", "pipeline.yaml", *arguments], standalone_mode=False)
    return code


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_failed_run_is_reported_in_every_form_and_annotated_on_github(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pipeline.yaml").write_text(f"{PIPELINE}reports: [ci.xml, out/report.json]\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project / "step.md"))
    assert run("--report", "out", "--report", "one.html", "--json") == 1
    assert names(project / "out") == FORMS
    assert {"ci.xml", "one.html", "step.md"} <= names(project)
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document == json.loads((project / "out" / "report.json").read_text())
    assert [(each["name"], each["verdict"], bool(each["path"])) for each in document["cells"]] == [
        ("digits/server", "proven", True),
        ("digits/small", "over budget", False),
    ]
    (command,) = (line for line in said.err.splitlines() if line.startswith("::"))
    assert command.startswith(
        "::error file=pipeline.yaml,line=6,title=onnxport%3A digits/small over budget::"
    )
    assert "exit 1" in said.err.splitlines()
    assert "digits/small" in (project / "step.md").read_text()

    monkeypatch.delenv("GITHUB_ACTIONS")
    assert run("--annotations", "gitlab", "--target", "server") == 0
    assert json.loads((project / "gl-code-quality-report.json").read_text()) == []
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("1 artefact, 1 proven; 1 from the cache; ")
    assert "section_start" in said.err


def test_a_refused_file_leaves_no_report_and_no_folder(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (project / "pipeline.yaml").write_text(PIPELINE.replace("{to: ort}", "{to: orrt}"))
    before = names(project)
    assert run("--report", "deep/out") == USAGE
    assert names(project) == before
    assert "::error file=pipeline.yaml,line=5," in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.setenv("GITLAB_CI", "true")
    assert run() == USAGE
    (found,) = json.loads((project / "gl-code-quality-report.json").read_text())
    assert found["location"] == {"path": "pipeline.yaml", "lines": {"begin": 5}}


def test_a_missing_model_is_reported_in_the_forms_that_can(project: Path) -> None:
    (project / "digits.onnx").unlink()
    assert run("--report", "out") == BAD_INPUT
    assert names(project / "out") == {"junit.xml", "summary.md"}


@pytest.mark.parametrize("path", ["run.docx", "none/run.html", "pipeline.yaml/out"])
def test_what_cannot_be_written_is_refused_before_the_work(project: Path, path: str) -> None:
    before = names(project)
    assert run("--report", path) == USAGE
    assert names(project) == before
