"""Runtimes by name: ours, those of other distributions, and every way to name or write a bad one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import onnxport
from onnxport.cli.commands import cli
from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.runtimes import registry
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.registry import KINDS, Kind
from onnxport.runtimes.settings import runtime_options
from tests.pipelines.test_plugins import Site

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
OPTION = "--candidate-runtime"

# A runtime that answers wrongly by as much as a setting of its own says.
PLUGIN = """
from onnxport.runtimes.registry import Kind
from onnxport.runtimes.ort.runtime import OrtRuntime

class Acme(OrtRuntime):
    def __init__(self, path, options):
        super().__init__(path)
        self.skew = float(dict(options.own).get("skew", "0"))

    name = "Acme 3.1"

    def run(self, feeds, *, taps=()):
        return {{name: value + self.skew for name, value in super().run(feeds, taps=taps).items()}}

STAGE = Kind("acme", "Acme", {formats}, f"{{__name__}}:{factory}", {distributions}, ("skew", "threads"))
"""


def plugin(**other: object) -> str:
    right = {"formats": ("onnx",), "factory": "Acme", "distributions": ()}
    return PLUGIN.format(**{**right, **other})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Site(folder)


def test_every_extra_of_a_kind_brings_its_distributions() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = {kind.extra: set(kind.distributions) for kind in KINDS if kind.extra}
    assert told.keys() == {"webgpu", "tract", "openvino", "ncnn", "mnn"}
    assert told == {extra: set(extras[extra]) for extra in told}


def test_the_first_of_a_format_answers_unless_another_is_named() -> None:
    assert registry.find_runtime("onnx").name == "ort"
    assert registry.find_runtime("ort").name == "ort"
    assert registry.find_runtime("tflite").name == "litert"
    assert registry.find_runtime("coreml").name == ("predict" if sys.platform == "darwin" else "evaluator")
    assert registry.find_runtime("onnx", "tract").title == "tract"


@pytest.mark.parametrize(
    ("format_", "given", "says"),
    [
        (
            "onnx",
            {"runtime": "trakt"},
            "'trakt' is not allowed for runtime; give auto, ort, ort-webgpu, tract, openvino, ncnn, mnn",
        ),
        ("tflite", {"runtime": "tract"}, "'tract' is not allowed for runtime; give auto, litert"),
        ("onnx", {"runtime": "tract", "threads": "2"}, "tract has no 'threads'; its settings are runtime"),
        ("onnx", {"runtime": "mnn", "level": "all"}, "MNN has no 'level'; its settings are runtime, threads"),
        ("onnx", {"runtime": "mnn", "threads": "0"}, "'0' is not allowed for threads"),
    ],
)
def test_what_a_runtime_does_not_know_is_refused(format_: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        runtime_options(format_, given, OPTION)  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"{OPTION}: ")
    assert says in str(refused.value)


def test_an_engine_that_is_not_installed_has_the_line_that_brings_it() -> None:
    absent = Kind("absent", "Absent", ("onnx",), "surely.absent:Runtime", ("surely-absent",), extra="tract")
    with pytest.raises(MissingDependencyError) as refused:
        absent.load()
    assert "Absent needs surely-absent, which is not installed" in str(refused.value)
    assert "-m pip install 'onnxport[tract]'" in str(refused.value)


def test_a_missing_engine_ends_validate_with_exit_5(tmp_path: Path) -> None:
    """As where the extra was not installed: its distribution is hidden from a fresh process."""
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text(
        "import importlib.metadata as metadata\n"
        "found = metadata.Distribution.from_name.__func__\n"
        "def from_name(cls, name):\n"
        "    if name == 'tract': raise metadata.PackageNotFoundError(name)\n"
        "    return found(cls, name)\n"
        "metadata.Distribution.from_name = classmethod(from_name)\n"
    )
    done = subprocess.run(
        [*(sys.executable, "-m", "onnxport", "validate", DIGITS, DIGITS, OPTION, "runtime=tract")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "tract needs tract, which is not installed" in done.stderr
    assert "pip install 'onnxport[tract]'" in done.stderr


def test_a_plugin_answers_for_a_candidate_with_settings_of_its_own(site: Site) -> None:
    site.plugin("acme-runtime", "runtimes", "acme", plugin())
    path = os.pathsep.join((str(site.folder), str(ROOT)))
    for skew, code in (("0", 0), ("3", 1)):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "onnxport", "validate", DIGITS, DIGITS, "--json"),
                *(OPTION, "runtime=acme", OPTION, f"skew={skew}"),
            ],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        (artifact,) = json.loads(done.stdout)["artifacts"]
        assert artifact["report"]["candidate"]["runtime"] == "Acme 3.1"


def test_python_and_doctor_know_a_plugin(site: Site) -> None:
    site.plugin("acme-runtime", "runtimes", "acme", plugin())
    with onnxport.load(DIGITS, runtime="acme") as runtime:
        assert runtime.name == "Acme 3.1"
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    assert [(each["kind"], each["name"], each["distribution"]) for each in found["plugins"]] == [
        ("runtime", "acme", "acme-runtime")
    ]
    assert found["runtimes"]["tract"] == {"works": True, "lacks": []}
    assert set(found["runtimes"]) == {kind.name for kind in KINDS}


FAULTS = {
    "raise ValueError('no licence')": "cannot be imported: ValueError: no licence",
    "STAGE = 3": "is of type int, not a Kind",
    plugin().replace('Kind("acme"', 'Kind("other"'): "has the name 'other', its entry point 'acme'",
    plugin(formats="'onnx'"): "has formats that are not a tuple",
    plugin(formats=("gguf",)): "known are onnx, tflite, coreml, ort",
    plugin().replace(':Acme"', '"'): "write module:callable",
}


@pytest.mark.parametrize(("code", "says"), FAULTS.items(), ids=FAULTS.values())
def test_what_is_no_kind_is_refused_by_its_distribution(site: Site, code: str, says: str) -> None:
    site.plugin("acme-runtime", "runtimes", "acme", code)
    with pytest.raises(MissingDependencyError) as refused:
        registry.find_runtime("onnx", "acme")
    said = str(refused.value)
    assert said.startswith("the plugin acme-runtime 3.1 cannot be used as runtime 'acme': ")
    assert says in said
    assert said.endswith("-m pip uninstall acme-runtime")


def test_a_name_that_two_bring_is_nobodys(site: Site) -> None:
    site.plugin("acme-runtime", "runtimes", "acme", plugin())
    site.plugin("other-runtime", "runtimes", "acme", plugin())
    site.plugin("third-runtime", "runtimes", "tract", plugin())
    with pytest.raises(MissingDependencyError, match=r"acme-runtime 3\.1 and other-runtime 3\.1 define it"):
        registry.find_runtime("onnx", "acme")
    with pytest.raises(MissingDependencyError, match=r"third-runtime 3\.1 and onnxport define it"):
        registry.find_runtime("onnx", "tract")
    assert registry.find_runtime("onnx").name == "ort"
    assert "conflicts with that of onnxport" in CliRunner().invoke(cli, ["doctor"]).stdout


def test_a_plugin_runs_the_formats_that_it_says(site: Site) -> None:
    site.plugin("acme-runtime", "runtimes", "acme", plugin(formats=("ort", "onnx")))
    assert registry.find_runtime("ort", "acme").title == "Acme"
    with pytest.raises(UsageError, match=r"Acme runs no \.tflite files, it runs \.onnx, \.ort"):
        registry.find_runtime("tflite", "acme")


def test_a_factory_that_is_missing_is_the_plugins_lack(site: Site) -> None:
    site.plugin("acme-runtime", "runtimes", "acme", plugin(factory="Absent"))
    with pytest.raises(MissingDependencyError, match="Acme cannot be imported"):
        onnxport.load(DIGITS, runtime="acme")


def test_options_hold_what_only_the_runtime_knows() -> None:
    assert RuntimeOptions().own == ()
    assert runtime_options("onnx", {"threads": "3"}, OPTION) == RuntimeOptions(threads=3)
