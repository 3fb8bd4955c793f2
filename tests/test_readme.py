"""The README's command lines are run as written, through sh, in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def commands(language: str) -> list[str]:
    return [
        line.partition("  #")[0].strip()
        for kind, text in BLOCKS
        if kind == language
        for line in text.splitlines()
        if line.strip()
    ]


def in_a_copy(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with what the README's commands read, and an environment in which `onnxport` is ours."""
    shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures")
    scripts = Path(sys.executable).parent
    return tmp_path, os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}


def test_the_make_targets_are_the_ones_that_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    targets = [command for command in commands("sh") if command.startswith("make ")]
    assert targets == ["make demo", "make test"]
    assert all(f"\n{target}\n" in script for target in targets)


def test_every_onnxport_command_works_as_written(tmp_path: Path) -> None:
    folder, environment = in_a_copy(tmp_path)
    lines = [command for command in commands("sh") if command.startswith("onnxport ")]
    assert len(lines) >= 5
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert done.stdout.strip(), line


@pytest.mark.parametrize("code", [text for kind, text in BLOCKS if kind == "python"])
def test_the_python_examples_work_as_written(code: str, tmp_path: Path) -> None:
    folder, environment = in_a_copy(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "proven" in done.stdout
