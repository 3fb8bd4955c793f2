"""GitHub's workflows, which do not run here: they are read, and what they name is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_what_github_wants(workflow: Path) -> None:
    found = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert set(found) == {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads `on` as a bool
    assert found[True]
    for job in found["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_of_a_version(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used), used


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_file_that_a_workflow_names_is_there(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w~/.-])((?:tests|fixtures|onnxport|docs)/[\w./-]+)", text))
    assert len(named) >= 4
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_is_shell(workflow: Path) -> None:
    for step in steps(workflow):
        if "run" in step:
            script = re.sub(r"\$\{\{.*?\}\}", "value", step["run"])
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="no actionlint")
def test_actionlint_finds_nothing() -> None:
    found = subprocess.run(["actionlint", *WORKFLOWS], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
