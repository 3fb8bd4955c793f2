from __future__ import annotations

import json
import sys
from importlib import metadata

import pytest
from click.testing import CliRunner

from onnxport.cli.commands import cli
from onnxport.core import errors
from onnxport.pipelines import environment
from onnxport.pipelines.registry import TARGETS as STAGES
from tests.cli.sandbox import Sandbox

# What the tests of URLs can do without; docs/guide/urls.md.
# What the tests' environment may lack: files by URL, viewers and trackers.
OF_DOORS = {"aiohttp", "s3fs", "gcsfs", "huggingface-hub", "oras", "netron", "mlflow-skinny", "wandb"}
DOORS = tuple(f"[{extra}]'" for extra in ("remote", "s3", "gs", "hf", "oci", "view", "mlflow", "wandb"))


def test_every_library_with_its_version_and_every_target(sandbox: Sandbox) -> None:
    outcome = sandbox.run("doctor", "--json")
    assert outcome.code == errors.PROVEN
    found = {library["name"]: library["version"] for library in outcome.document["libraries"]}
    assert found == {name: library.version for name, library in environment.LIBRARIES.items()}
    assert found["onnx"] == metadata.version("onnx")
    missing = {name for name, version in found.items() if version is None}
    assert missing <= OF_DOORS, "the tests' environment has all others"
    assert set(outcome.document["targets"]) == set(STAGES)
    text = sandbox.run("doctor").stdout
    for name, number in found.items():
        assert f"  {name:<18} {number or 'missing'}" in text


def test_missing_target_library_is_no_failure_but_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remove(monkeypatch, "litert-converter")
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    found = json.loads(result.stdout)
    assert result.exit_code == errors.PROVEN
    assert found["targets"]["tflite"] == {"works": False, "lacks": ["litert-converter"]}
    assert found["targets"]["ort"]["works"]
    assert "pip install litert-converter" in found["remedies"][0]


def test_a_missing_framework_is_optional_and_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, "torch", "onnxscript")
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    assert (found["exit_code"], found["remedies"]) == (errors.PROVEN, [])
    (line,) = (each for each in found["extras"] if not each.endswith(DOORS))
    assert line.endswith("-m pip install 'onnxport[torch]'")
    assert found["sources"]["pytorch"] == {"works": False, "lacks": ["torch", "onnxscript"]}
    text = CliRunner().invoke(cli, ["doctor"]).stdout
    assert "  torch              export from PyTorch\n" in text.partition("more frameworks and runtimes\n")[2]
    assert "to install what is missing" not in text


def test_one_line_installs_all_extras_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, "torch", "onnxscript", "scikit-learn", "pandas", "MNN")
    text = CliRunner().invoke(cli, ["doctor"]).stdout
    shown = text.partition("to install more frameworks and runtimes\n")[2].splitlines()
    assert shown.pop().startswith(f"  run: {sys.executable} -m pip install 'onnxport[")
    assert "  sklearn            export from scikit-learn, columns of scikit-learn estimators" in shown
    (command,) = (line for line in text.splitlines() if "pip install" in line)
    named = command.partition("[")[2].removesuffix("]'").split(",")
    assert {"torch", "sklearn", "mnn"} <= set(named)
    assert [line.split()[0] for line in shown] == named
    assert named == list(dict.fromkeys(named))


def test_remedy_on_a_platform_without_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    remedy = environment.LIBRARIES["litert-converter"].remedy
    assert remedy.startswith("litert-converter has wheels for Linux x86_64, macOS arm64 only")
    assert "pip install" not in remedy


@pytest.mark.parametrize(
    ("platform", "state"),
    [("linux", {"works": False, "lacks": ["macOS"]}), ("darwin", {"works": True, "lacks": []})],
)
def test_a_runtime_of_one_system_works_only_there(
    platform: str, state: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    assert found["runtimes"]["predict"] == state
    assert found["runtimes"]["evaluator"] == {"works": True, "lacks": []}
    works = "works" if state["works"] else "does not work here: it needs macOS"
    assert f"  predict            {works}\n" in CliRunner().invoke(cli, ["doctor"]).stdout


def test_missing_core_library_is_exit_5(monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, "onnxruntime")
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == errors.MISSING_DEPENDENCY
    assert "onnxruntime        missing" in result.stdout
    assert "pip install onnxruntime" in result.stdout


def test_doctor_answers_where_the_libraries_are_missing(sandbox: Sandbox) -> None:
    sandbox.patch(
        "import sys\n"
        "for name in ('pydantic', 'rich', 'numpy', 'onnx', 'onnx_ir', 'onnxruntime', 'yaml'):\n"
        "    sys.modules[name] = None\n"
    )
    assert "targets" in sandbox.run("doctor").stdout


def remove(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Lets libraries look as if they were not installed."""
    found = metadata.version

    def version(asked: str) -> str:
        if asked in names:
            raise metadata.PackageNotFoundError(asked)
        return found(asked)

    monkeypatch.setattr(metadata, "version", version)
