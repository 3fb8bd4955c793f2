"""Stages and targets of other distributions: the example as a user installs it, and every way to write a bad one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import onnxport
from onnxport.cli.commands import cli
from onnxport.core.errors import MachineError, MissingDependencyError, UsageError
from onnxport.pipelines import plugins, registry

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that examples/plugin is installed to, from a copy: building writes beside what it builds."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "plugin")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    where = ["--no-build-isolation", "--target", str(folder / "site"), str(folder / "plugin")]
    done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_the_example_runs_is_cached_and_made_again_when_its_code_changes(
    example: Path, tmp_path: Path
) -> None:
    project(tmp_path, (EXAMPLE / "pipeline.yaml").read_text().replace("../../fixtures/digits/", ""))
    names = ("digits/sparse", "digits/app")
    code, document = run(tmp_path, example)
    assert (code, statuses(document)) == (0, dict.fromkeys(names, "made"))
    assert document["nodes"][0]["run"]["environment"]["acme-onnxport"] == "1.0"
    assert onnxport.validate_model(DIGITS, tmp_path / "build" / "digits" / "app.ort").verdict == "proven"
    code, document = run(tmp_path, example)
    assert (code, statuses(document)) == (0, dict.fromkeys(names, "cached"))
    changed = shutil.copytree(example, tmp_path / "changed")
    with (changed / "acme_onnxport" / "workers.py").open("a") as file:
        file.write("\n# another comment\n")
    code, document = run(tmp_path, changed)
    assert (code, statuses(document)) == (0, dict.fromkeys(names, "made"))


def test_the_code_of_a_plugin_is_its_package_or_its_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme_package"
    (package / "inner" / "__pycache__").mkdir(parents=True)
    files = {
        "module": tmp_path / "acme_module.py",
        "inner": package / "inner" / "work.py",
        "table": package / "table.json",
        "bytecode": package / "inner" / "__pycache__" / "work.cpython-311.pyc",
    }
    for file in (*files.values(), package / "__init__.py"):
        file.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    def counted(name: str, module: str) -> bool:
        """Tell whether a change to this file is one to the code of the module."""
        before = plugins.source_digest((module,))
        files[name].write_text("changed = 1")
        return plugins.source_digest((module,)) != before

    assert counted("inner", "acme_package.inner.work")
    assert counted("table", "acme_package.inner.work")
    assert not counted("bytecode", "acme_package.inner.work")
    assert not counted("module", "acme_package.inner.work")
    files["module"].write_text("")
    assert counted("module", "acme_module")
    assert not counted("table", "acme_module")


def test_the_judge_holds_what_a_plugin_made(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(example))
    pipeline = (EXAMPLE / "pipeline.yaml").read_text().replace("../../fixtures/digits/", "")
    project(tmp_path, pipeline.replace("1.0e-6", "0.1"))
    outcome = CliRunner().invoke(cli, ["run", str(tmp_path / "pipeline.yaml"), "--json"])
    first, second = json.loads(outcome.stdout)["nodes"]
    assert outcome.exit_code == 1
    assert first["run"]["artifacts"][0]["report"]["verdict"] == "not equivalent"
    assert second["status"] == "not run"
    assert not (tmp_path / "build").exists()


def test_an_option_that_the_plugin_refuses_is_said(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(example))
    pipeline = (EXAMPLE / "pipeline.yaml").read_text().replace("../../fixtures/digits/", "")
    for written, says in (("below: 0", "give more than 0"), ("belov: 1", "did you mean 'below'?")):
        project(tmp_path, pipeline.replace("below: 1.0e-6", written))
        outcome = CliRunner().invoke(cli, ["run", str(tmp_path / "pipeline.yaml")])
        assert outcome.exit_code == 2
        assert says in " ".join(outcome.stderr.split())


def test_doctor_lists_plugins_without_importing_them(
    site: Site, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("broken-plugin", "stages", "zero-weights", "raise SystemExit('do not import me')")
    monkeypatch.syspath_prepend(str(example))
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)["plugins"]
    assert [(each["name"], each["kind"], each["distribution"]) for each in found] == [
        ("zero-weights", "stage", "acme-onnxport"),
        ("zero-weights", "stage", "broken-plugin"),
        ("ort-portable", "target", "acme-onnxport"),
    ]
    assert found[0]["rivals"] == ["broken-plugin 3.1"]
    assert "conflicts with that of broken-plugin 3.1" in CliRunner().invoke(cli, ["doctor"]).stdout


def test_a_broken_plugin_that_nobody_names_harms_nobody(site: Site, tmp_path: Path) -> None:
    site.plugin("broken-plugin", "stages", "shrink", "raise SystemExit('do not import me')")
    assert "shrink" in registry.known_stages()
    project(tmp_path, "{version: 1, model: digits.onnx, targets: {app: {to: ort}}}")
    assert CliRunner().invoke(cli, ["run", str(tmp_path / "pipeline.yaml")]).exit_code == 0


DECLARED = """
from pydantic import BaseModel, Field
from onnxport.pipelines.stages import Stage

class Params(BaseModel):
    {field}

STAGE = Stage({name!r}, {params}, takes={takes!r}, gives={gives!r}, libraries={libraries}, worker={worker!r})
"""


def declared(**other: object) -> str:
    """The module of a plugin that is right but for `other`."""
    right = {"name": "shrink", "params": "Params", "takes": "onnx", "gives": "onnx", "libraries": "()"}
    return DECLARED.format(**{**right, "field": "level: int = 1", "worker": "json:loads", **other})


FAULTS = {
    "raise ValueError('no licence')": "cannot be imported: ValueError: no licence",
    "raise SystemExit(3)": "cannot be imported: SystemExit: 3",
    "import surely_absent": "cannot be imported: ModuleNotFoundError: No module named 'surely_absent'",
    "OTHER = 1": "cannot be imported: AttributeError:",
    "STAGE = 3": "is of type int, not a Stage",
    declared(name="other"): "has the name 'other', but its entry point 'shrink'",
    declared(params="dict"): "are not a pydantic model",
    declared(params="type('Other', (Params,), {})"): "cannot be imported by their name",
    declared(field="use: int = 1"): "has the option 'use', which is a key of every stage",
    declared(takes="tflite"): "takes 'tflite'; a stage must take onnx",
    declared(gives="ort"): "a stage must give onnx, a target has the group onnxport.targets",
    declared(libraries="'numpy'"): "not a tuple of distribution names",
    declared(worker="loads"): "write module:function",
    declared(worker="surely.absent:f"): "its code cannot be read: ModuleNotFoundError",
}


@pytest.mark.parametrize(("code", "says"), FAULTS.items(), ids=FAULTS.values())
def test_what_is_no_stage_is_refused_by_its_distribution(site: Site, code: str, says: str) -> None:
    site.plugin("acme-shrink", "stages", "shrink", code)
    with pytest.raises(MissingDependencyError) as refused:
        registry.shared_stage("shrink")
    said = str(refused.value)
    assert said.startswith("the plugin acme-shrink 3.1 cannot be used as stage 'shrink': ")
    assert says in said
    assert said.endswith("-m pip uninstall acme-shrink")


def test_a_target_of_a_format_that_nothing_can_prove(site: Site) -> None:
    site.plugin("acme-shrink", "targets", "shrink", declared(gives="gguf"))
    with pytest.raises(MissingDependencyError, match="formats that can be proven are onnx, tflite, coreml"):
        registry.target("shrink")


def test_a_name_that_two_bring_is_nobodys(site: Site) -> None:
    site.plugin("acme-shrink", "stages", "shrink", declared())
    site.plugin("other-shrink", "stages", "shrink", declared())
    with pytest.raises(MissingDependencyError, match=r"acme-shrink 3\.1 and other-shrink 3\.1 define it"):
        registry.shared_stage("shrink")


def test_our_names_are_ours(site: Site) -> None:
    assert {*registry.STAGES, *registry.TARGETS, "onnx", "export"} == plugins.RESERVED
    site.plugin("acme-shrink", "targets", "ort", declared(name="ort"))
    with pytest.raises(MissingDependencyError, match=r"acme-shrink 3\.1 and onnxport define it"):
        registry.target("ort")
    assert registry.target("tflite") is registry.TARGETS["tflite"]


def test_a_missing_library_of_a_plugin_has_the_line_that_brings_it(site: Site) -> None:
    site.plugin("acme-shrink", "stages", "shrink", declared(libraries="('surely-absent',)"))
    with pytest.raises(
        MissingDependencyError, match=r"'shrink' needs surely-absent.*-m pip install surely-absent"
    ):
        registry.open_worker(registry.shared_stage("shrink"))


def test_an_unknown_name_gets_the_nearest(site: Site) -> None:
    site.plugin("acme-shrink", "stages", "shrink", declared())
    with pytest.raises(UsageError, match="there is no stage 'shrinc'; did you mean 'shrink'"):
        registry.shared_stage("shrinc")


WORKERS = {
    "raise ZeroDivisionError('on purpose')": "ZeroDivisionError: on purpose",
    "raise SystemExit": "SystemExit",
    "open('/surely/absent')": "FileNotFoundError",
    "return 3": "TypeError: its worker returned int, not a Product",
    "return Product(Artifact(work.output, 'onnx'))": "TypeError: its worker left no onnx model at work.output",
}
WORKER = """
from contextlib import contextmanager
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.stages import Product

@contextmanager
def worker():
    def make(model, params, work):
        print("to nobody")
        {body}
    yield make
"""


@pytest.mark.parametrize(("body", "says"), WORKERS.items(), ids=WORKERS.values())
def test_a_worker_that_fails_is_the_plugins_fault(site: Site, body: str, says: str, tmp_path: Path) -> None:
    module = site.plugin("acme-shrink", "stages", "shrink", "")
    (site.folder / f"{module}.py").write_text(
        declared(worker=f"{module}:worker") + WORKER.format(body=body), encoding="utf-8"
    )
    project(
        tmp_path,
        "{version: 1, model: digits.onnx, stages: {s: {use: shrink}}, targets: {a: {to: onnx, from: s}}}",
    )
    outcome = CliRunner().invoke(cli, ["run", str(tmp_path / "pipeline.yaml"), "--json"])
    failure = json.loads(outcome.stdout)["nodes"][0]["failure"]
    assert (outcome.exit_code, failure["kind"]) == (6, MachineError.__name__)
    assert "the step 'shrink' of the plugin acme-shrink 3.1 failed: " + says in failure["message"]


READS = "open('table.txt').read(); return Product(model.save(work.output, model))"


def test_what_a_plugin_reads_is_part_of_what_it_makes(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = site.plugin("acme-read", "stages", "read", "")
    (site.folder / f"{module}.py").write_text(
        declared(worker=f"{module}:worker", name="read") + WORKER.format(body=READS), encoding="utf-8"
    )
    project(
        tmp_path,
        "{version: 1, model: digits.onnx, validate: {samples: 1}, stages: {s: {use: read}}, "
        "targets: {a: {to: onnx, from: s}}}",
    )
    monkeypatch.chdir(tmp_path)
    seen = []
    for text in ("1", "1", "22"):
        if not seen or text != "1":
            (tmp_path / "table.txt").write_text(text)
            os.utime(tmp_path / "table.txt", (1e9, 1e9))  # what is written while it is read counts as changed
        outcome = CliRunner().invoke(cli, ["run", "pipeline.yaml", "--json"])
        assert outcome.exit_code == 0, outcome.output
        seen.append(statuses(json.loads(outcome.stdout))["digits/s"])
    assert seen == ["made", "cached", "made"]


class Site:
    """A folder of distributions on the import path.

    Their modules have names of their own from test to test, since a process imports each once.
    """

    count = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plugin(self, distribution: str, group: str, name: str, code: str) -> str:
        """Installs a distribution of one module with one entry point; gives the module's name."""
        Site.count += 1
        module = f"plugin_of_tests_{Site.count}"
        (self.folder / f"{module}.py").write_text(code, encoding="utf-8")
        about = self.folder / f"{distribution.replace('-', '_')}-3.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 3.1\n")
        (about / "entry_points.txt").write_text(f"[onnxport.{group}]\n{name} = {module}:STAGE\n")
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Site(folder)


def project(folder: Path, pipeline: str) -> None:
    shutil.copy(DIGITS, folder)
    (folder / "pipeline.yaml").write_text(pipeline)


def run(folder: Path, site: Path) -> tuple[int, dict[str, object]]:
    """The installed command in a process of its own, in which the plugin is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "onnxport", "run", "pipeline.yaml", "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(site)))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def statuses(document: dict[str, object]) -> dict[str, str]:
    return {node["name"]: node["status"] for node in document["nodes"]}
