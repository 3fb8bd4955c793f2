"""What others' CI takes from this tree: the composite action, GitLab's template and the hooks of pre-commit.

The services do not run here. Their files are read, and the shell in them is run as they run it: with their variables,
and with ours in the places of their expressions.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
NOT_FROZEN = {"steps.look.outputs.frozen": "false"}
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
PIPELINE = """
version: 1
model: digits.onnx
targets:
  server: {to: ort}
  other: {to: ort, level: basic}
"""


def begun(folder: Path) -> Path:
    shutil.copy(DIGITS, folder)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return begun(tmp_path)


@dataclass(frozen=True)
class Made:
    """What the action's step left."""

    project: Path
    code: int
    said: str
    outputs: dict[str, str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A project whose pipeline the action ran."""
    folder = begun(tmp_path_factory.mktemp("made"))
    inputs = {"targets": "server other", "jobs": "1"}
    return Made(folder, *stepped(folder, "Make and prove", inputs, **NOT_FROZEN))


@pytest.fixture
def locked(made: Made, tmp_path: Path) -> Path:
    """A copy of it, with its lock."""
    return Path(shutil.copytree(made.project, tmp_path / "locked"))


def environment(**variables: str) -> dict[str, str]:
    """One in which `onnxport` and `python` are ours."""
    scripts = Path(sys.executable).parent
    own = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own, **variables}


def expanded(text: str, values: dict[str, str]) -> str:
    """GitHub's expressions by their values."""
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: values[found[1]], text)


def stepped(
    project: Path, name: str, inputs: dict[str, str], **known: str
) -> tuple[int, str, dict[str, str]]:
    """Runs a step of the action as GitHub does: its exit code, what it says, and its outputs."""
    defaults = {name: str(each["default"]) for name, each in ACTION["inputs"].items()}
    values = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()} | known
    step = STEPS[name]
    assert step["shell"] == "bash"
    assert "${{" not in step["run"], "what users give reaches a shell through variables only"
    outputs = project / "outputs"
    outputs.write_text("")
    variables = {key: expanded(value, values) for key, value in step["env"].items()}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=project,
        env=environment(
            **variables,
            GITHUB_ACTIONS="true",
            GITHUB_OUTPUT=str(outputs),
            GITHUB_STEP_SUMMARY=str(project / "summary"),
            RUNNER_TEMP=str(project),
            ONNXPORT_CACHE=str(project / ".onnxport"),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    return done.returncode, done.stdout + done.stderr, found


def test_the_action_is_composite_and_its_parts_fit() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert all(each["description"] and "default" in each for each in ACTION["inputs"].values())
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"inputs\.([\w-]+)", text))
    assert named == set(ACTION["inputs"])
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert "run" not in step or step["shell"] == "bash"
        assert "uses" not in step or re.fullmatch(r"(actions|github)/[\w/-]+@v\d+", step["uses"])
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.(\w+)\.", text)) == ids


@pytest.mark.parametrize(
    ("given", "lock", "frozen"),
    [("auto", False, "false"), ("auto", True, "true"), ("true", False, "true"), ("false", True, "false")],
)
def test_the_action_freezes_where_there_is_a_lock(given: str, lock: bool, frozen: str, project: Path) -> None:
    if lock:
        (project / "pipeline.lock").write_text("")
    code, _, outputs = stepped(project, "Look at the pipeline", {"frozen": given})
    assert (code, outputs) == (0, {"frozen": frozen, "cache": "./.onnxport"})


def test_the_action_refuses_another_word(project: Path) -> None:
    code, said, _ = stepped(project, "Look at the pipeline", {"frozen": "yes"})
    assert (code, "::error::" in said) == (2, True)


def test_the_action_runs_the_pipeline_and_hands_on_what_came_of_it(made: Made, project: Path) -> None:
    assert (made.code, made.outputs["exit-code"]) == (0, "0"), made.said
    report = json.loads((made.project / made.outputs["json"]).read_text())
    assert [cell["target"] for cell in report["cells"]] == ["server", "other"]
    assert (made.project / made.outputs["html"]).is_file()
    assert (made.project / made.outputs["sarif"]).is_file()
    assert "digits/server" in (made.project / "summary").read_text()
    code, said, outputs = stepped(project, "Make and prove", {"targets": "nowhere"}, **NOT_FROZEN)
    assert (code, outputs["exit-code"]) == (2, "2")
    assert "there is no target 'nowhere'" in said


@pytest.mark.parametrize(
    ("inputs", "installed"),
    [
        ({}, ["{tree}"]),
        ({"extras": "images,torch", "packages": "a==1 b==2"}, ["{tree}[images,torch]", "a==1", "b==2"]),
        ({"version": "1.2.0", "extras": "images"}, ["onnxport[images]==1.2.0"]),
    ],
)
def test_the_action_installs_what_is_asked_for(
    inputs: dict[str, str], installed: list[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = project / "bin" / "python"
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > asked\n')
    pip.chmod(0o755)
    # Found before ours: what pip would do is pip's affair.
    monkeypatch.setattr(sys, "executable", str(pip))
    code, said, _ = stepped(project, "Install onnxport", inputs, **{"github.action_path": "/tree"})
    assert code == 0, said
    wanted = ["-m", "pip", "install", "--quiet", *(each.format(tree="/tree") for each in installed)]
    locked = project / "locked.txt"
    assert (project / "asked").read_text().splitlines() == [*wanted, "--requirement", str(locked)]
    assert locked.read_text() == ""


def test_the_versions_of_a_lock_are_what_is_installed(locked: Path) -> None:
    """Of a lock that a run wrote, by the action and by GitLab's template alike."""
    versions = yaml.safe_load((locked / "pipeline.lock").read_text())["versions"]
    wanted = {
        f"{name}=={version}" for name, version in versions.items() if name not in ("python", "platform")
    }
    assert len(wanted) > 3
    script = STEPS["Install onnxport"]["run"]
    before_pip = script[script.index("locked=") : script.index("# Without a lock")]
    variables = environment(PIPELINE="pipeline.yaml", RUNNER_TEMP=str(locked))
    own = {each for each in wanted if "onnxport" in each}
    for shell in (before_pip, gitlab()["script"][0]):
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", shell], cwd=locked, env=variables, check=True)
        assert set((locked / "locked.txt").read_text().splitlines()) == wanted - own
    assert set((locked / "versions.txt").read_text().splitlines()) == wanted


HOOKS = {
    hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
}


def hooked(project: Path, hook: str) -> tuple[int, str]:
    """Runs a hook as pre-commit does."""
    words = [*shlex.split(HOOKS[hook]["entry"]), *HOOKS[hook]["args"]]
    variables = environment(ONNXPORT_CACHE=str(project / ".onnxport"))
    done = subprocess.run(words, cwd=project, env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_hooks_are_for_what_they_read() -> None:
    for hook in HOOKS.values():
        assert {"id", "name", "entry", "language", "files"} <= set(hook)
        assert all(
            re.search(hook["files"], name) for name in ("pipeline.yaml", "ml/pipeline.yml", "a/model.onnx")
        )
        assert not any(re.search(hook["files"], name) for name in ("README.md", "docker-compose.yaml"))
    assert re.search(HOOKS["onnxport-lock"]["files"], "pipeline.lock")


def test_the_hooks_find_a_bad_key_and_a_stale_lock(locked: Path) -> None:
    assert hooked(locked, "onnxport-plan") == (0, "")
    assert hooked(locked, "onnxport-lock") == (0, "")
    (locked / "pipeline.yaml").write_text(PIPELINE.replace("basic", "extended"))
    code, said = hooked(locked, "onnxport-lock")
    assert (code, "level" in said) == (2, True)
    (locked / "pipeline.yaml").write_text(PIPELINE.replace("level", "lvl"))
    code, said = hooked(locked, "onnxport-plan")
    assert (code, "pipeline.yaml:6" in said) == (2, True)


def gitlab(**inputs: str) -> dict[str, Any]:
    """The template's job, with its inputs filled in as GitLab does."""
    text = (ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8")
    spec, body = text.split("\n---\n")
    defaults = {name: each["default"] for name, each in yaml.safe_load(spec)["spec"]["inputs"].items()}
    filled = re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda found: {**defaults, **inputs}[found[1]], body)
    (job,) = yaml.safe_load(filled).values()
    return dict(job)


def test_gitlabs_template_runs_the_pipeline(project: Path) -> None:
    job = gitlab(targets="server", jobs="1")
    _, install, *script = job["script"]
    assert (
        install == "python -m pip install --quiet $PACKAGE --requirement locked.txt --constraint versions.txt"
    )
    variables = {name: value for name, value in job["variables"].items() if name != "PIP_CACHE_DIR"}
    variables["ONNXPORT_CACHE"] = variables["ONNXPORT_CACHE"].replace("$CI_PROJECT_DIR", str(project))
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(script)],
        cwd=project,
        env=environment(**variables, GITLAB_CI="true"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (project / job["artifacts"]["reports"]["junit"]).is_file()
    assert (project / job["artifacts"]["reports"]["codequality"]).is_file()
    assert (project / "build" / "digits" / "server.ort").is_file()
    assert not (project / "build" / "digits" / "other.ort").exists()
    assert set(job["cache"]["paths"]) == {".onnxport", ".pip"}
    assert (project / ".onnxport").is_dir()


def test_gitlabs_template_freezes_where_there_is_a_lock(project: Path) -> None:
    """Shown by `onnxport`, which here only repeats what it is asked."""
    (project / "onnxport").write_text('#!/bin/sh\necho "$@"\n')
    (project / "onnxport").chmod(0o755)
    for given, lock, frozen in (("auto", True, True), ("auto", False, False), ("false", True, False)):
        (project / "pipeline.lock").touch() if lock else (project / "pipeline.lock").unlink(missing_ok=True)
        job = gitlab(frozen=given)
        variables = {**job["variables"], "PATH": f"{project}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-e", "-c", "\n".join(job["script"][2:])],
            cwd=project,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("--frozen" in done.stdout) == frozen
