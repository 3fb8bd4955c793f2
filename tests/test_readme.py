"""The command lines and Python examples of the README and of the first pages of the site run as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands(page: Path) -> list[str]:
    lines = [line.partition("  #")[0].strip() for text in blocks(page, "sh") for line in text.splitlines()]
    return [line for line in lines if line]


def in_a_copy(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with what the commands read, and an environment in which `onnxport` is ours."""
    shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures")
    scripts = Path(sys.executable).parent
    return tmp_path, os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_make_targets_are_the_ones_that_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    targets = [command for command in commands(ROOT / "README.md") if command.startswith("make ")]
    assert targets == ["make demo", "make test"]
    assert all(f"\n{target}\n" in script for target in targets)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=named)
def test_every_onnxport_command_works_as_written(page: Path, tmp_path: Path) -> None:
    folder, environment = in_a_copy(tmp_path)
    lines = [command for command in commands(page) if command.startswith("onnxport ")]
    assert lines
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert done.stdout.strip(), line


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_the_python_examples_work_as_written(page: Path, tmp_path: Path) -> None:
    folder, environment = in_a_copy(tmp_path)
    for code in blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "proven" in done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=named)
def test_the_pipelines_are_read_as_written(page: Path, tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    shutil.copy(ROOT / "fixtures" / "digits" / "digits.onnx", tmp_path / "model.onnx")
    shutil.copy(ROOT / "fixtures" / "digits" / "test.npz", tmp_path / "samples" / "test.npz")
    texts = [text for text in blocks(page, "yaml") if text.startswith("version: 1\n")]
    assert texts
    for text in texts:
        (tmp_path / "pipeline.yaml").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "onnxport", "plan", "pipeline.yaml"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
