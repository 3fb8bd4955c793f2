"""A pipeline on a Dask cluster of two processes on this machine: the same bytes as without, whatever dies."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from onnxport.cli.commands import cli
from onnxport.core.plugins import installed
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.executors import dask_worker
from onnxport.pipelines.executors.parcel import NotPortable, Parcel
from onnxport.pipelines.executors.task import Task
from onnxport.pipelines.registry import OPTIMIZE, QUANTIZE, TARGETS
from onnxport.pipelines.runner.jobs import Step
from onnxport.quantize.calibration import cluster as calibration
from onnxport.validate.params import ValidateParams
from tests.pipelines.test_plugins import Site

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits" / "digits.onnx"
# The last step is sent two products that are both called model.onnx in the cache; the samples lie in a folder.
PIPELINE = """
version: 1
model: digits.onnx
validate: {inputs: samples}
stages:
  lean: {use: optimize}
  older: {use: optimize, from: lean, opset: 12}
targets:
  app: {to: ort, from: older}
"""
# Ends the Dask worker that it runs under, the first time; then the model is copied.
DEADLY = """
import os, pathlib, signal
from contextlib import contextmanager
from pydantic import BaseModel
from onnxport.pipelines.stages import Product, Stage

class Params(BaseModel):
    mark: str

@contextmanager
def deadly():
    def make(model, params, work):
        mark = pathlib.Path(params.mark)
        if not mark.exists():
            mark.touch()
            os.kill(os.getppid(), signal.SIGKILL)
        return Product(model.noted(work.manifest).save(work.output))
    yield make

STAGE = Stage("deadly", Params, "onnx", "onnx", (), __name__ + ":deadly")
"""


# Has no room on the disk the first time.
FULL = (
    DEADLY.replace(
        "import os, pathlib, signal", "import pathlib\nfrom onnxport.core.errors import MachineError"
    )
    .replace("os.kill(os.getppid(), signal.SIGKILL)", 'raise MachineError("the disk is full")')
    .replace("deadly", "full")
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Plugins that the cluster's processes have as well as this one."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        site = Site(folder)
        site.plugin("acme-deadly", "stages", "deadly", DEADLY)
        site.plugin("acme-full", "stages", "full", FULL)
        yield site


@pytest.fixture(scope="module")
def scheduler(site: Site) -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    ) as running:
        yield running.scheduler_address


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DIGITS, tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "samples").mkdir()
    images = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    for number, image in enumerate(images):
        np.savez(tmp_path / "samples" / f"{number}.npz", image=image[None])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONNXPORT_CACHE", raising=False)
    return tmp_path


def run(*options: str) -> tuple[int, dict[str, Any]]:
    outcome = CliRunner().invoke(cli, ["run", "pipeline.yaml", "--json", *options])
    return outcome.exit_code, json.loads(outcome.stdout)


def on(scheduler: str) -> tuple[int, dict[str, Any]]:
    return run("--executor", "dask", "--scheduler", scheduler)


def artefacts(project: Path) -> dict[str, bytes]:
    """What was delivered, and what is kept."""
    places = (project / "build", project / ".onnxport" / "stages")
    files = (
        file for place in places for file in place.rglob("*") if file.is_file() and file.suffix != ".json"
    )
    return {file.relative_to(project).as_posix(): file.read_bytes() for file in files}


def without_times(document: Any) -> Any:
    """A report but for what is another from run to run."""
    if isinstance(document, dict):
        others = ("seconds", "timings", "arguments", "path", "gib")
        return {key: without_times(value) for key, value in document.items() if key not in others}
    return [without_times(each) for each in document] if isinstance(document, list) else document


def test_a_cluster_gives_the_same_bytes_and_the_same_report(scheduler: str, project: Path) -> None:
    code, here = run()
    expected = artefacts(project)
    for place in ("build", ".onnxport"):
        shutil.rmtree(project / place)
    there_code, there = on(scheduler)
    assert (code, there_code) == (0, 0)
    assert artefacts(project) == expected
    assert len([name for name in expected if name.startswith("build/")]) == 2
    assert without_times(there) == without_times(here)
    assert "dask" not in json.dumps({**there, "arguments": ()})
    assert "samples" in json.dumps(there)
    assert {node["status"] for node in on(scheduler)[1]["nodes"]} == {"cached"}


def test_what_a_killed_worker_left_undone_another_does(scheduler: str, project: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (project / "pipeline.yaml").write_text(
        PIPELINE.replace("{use: optimize}", f"{{use: deadly, mark: {mark}}}").replace(", opset: 12", "")
    )
    mark.touch()
    assert run()[0] == 0
    expected = artefacts(project)
    for place in ("build", ".onnxport"):
        shutil.rmtree(project / place)
    mark.unlink()
    assert on(scheduler)[0] == 0
    assert mark.exists()
    assert artefacts(project) == expected


def test_a_product_that_a_machine_failed_is_made_again(scheduler: str, project: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (project / "pipeline.yaml").write_text(
        PIPELINE.replace("{use: optimize}", f"{{use: full, mark: {mark}}}").replace(", opset: 12", "")
    )
    code, document = run("--executor", "dask", "--scheduler", scheduler, "--retries", "0")
    assert code == 6
    assert "the disk is full" in json.dumps(document)
    mark.unlink()
    assert on(scheduler)[0] == 0


def test_a_product_runs_where_its_resources_are(scheduler: str, project: Path) -> None:
    distributed = pytest.importorskip("distributed")
    needy = PIPELINE.replace("from: older}", "from: older, resources: {GPU: 1}}")
    (project / "pipeline.yaml").write_text(needy)
    code, document = on(scheduler)
    assert code == 6
    (said,) = {node["failure"]["message"] for node in document["nodes"] if node["failure"] is not None}
    assert said.startswith(
        "no worker of the cluster offers what digits/app needs: GPU=1; start one: dask worker tcp"
    )
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1", resources={"GPU": 1}
    ) as gifted:
        assert on(gifted.scheduler_address)[0] == 0
    assert {node["status"] for node in run()[1]["nodes"]} == {"cached"}  # they are no part of the key


def test_the_dashboard_is_told(scheduler: str, project: Path) -> None:
    options = ["run", "pipeline.yaml", "--executor", "dask", "--scheduler", scheduler]
    outcome = CliRunner().invoke(cli, options)
    assert outcome.exit_code == 0
    assert "the cluster's dashboard: http://127.0.0.1:" in outcome.stderr


def test_what_was_sent_is_not_kept(scheduler: str) -> None:
    """Dask keeps messages of a connection, 1,000 of them: with them the files of each task."""
    from onnxport.quantize.calibration.cluster import connect

    with connect(scheduler) as client:
        for number in range(30):
            assert client.submit(len, [number] * 1000).result() == 1000
        assert 0 < len(client.scheduler_comm.recent_message_log) < 10


def test_an_error_names_the_users_file(scheduler: str, project: Path) -> None:
    (project / "samples" / "0.npz").write_bytes(b"no archive")
    code, document = on(scheduler)
    assert code == 4
    (said,) = {node["failure"]["message"] for node in document["nodes"] if node["failure"] is not None}
    assert said.startswith("samples/0.npz ")
    assert not (project / "build").exists()


@pytest.mark.parametrize("name", ["onnxruntime", "sources"])
def test_another_version_on_the_workers_is_refused(
    scheduler: str, project: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dask_worker._version
    monkeypatch.setattr(dask_worker, "_version", lambda asked: "0" if asked == name else own(asked))
    code, document = on(scheduler)
    assert code == 2
    (said,) = {node["failure"]["message"] for node in document["nodes"] if node["failure"] is not None}
    what = "different source code of onnxport" if name == "sources" else f"{name} {own(name)}, not 0 as here"
    assert said.startswith(f"a worker of the cluster has {what}: their results would differ")


def test_code_of_a_plugin_that_differs_is_refused(scheduler: str, project: Path, site: Site) -> None:
    (project / "pipeline.yaml").write_text(PIPELINE.replace("{use: optimize}", "{use: deadly, mark: .}"))
    (module,) = (file for file in site.folder.glob("*.py") if "deadly" in file.read_text())
    before = module.read_text()
    assert installed("stage")
    dask_worker.plugins.load.cache_clear()
    try:
        with module.open("a") as file:
            file.write("# changed\n")
        provider = dask_worker.plugins.find("stage", "deadly").provider
    finally:
        module.write_text(before)
    fault = dask_worker._find_mismatch(dask_worker.Requirements({}, provider))
    assert "different source code of acme-deadly 3.1" in str(fault)
    dask_worker.plugins.load.cache_clear()


def test_no_scheduler_and_no_worker_are_said_before_anything_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(calibration, "_CONNECTING", 1)
    code, document = on("tcp://127.0.0.1:1")
    assert code == 6
    assert document["error"]["message"].startswith("no Dask scheduler answers at tcp://127.0.0.1:1")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as none:
        code, document = on(none.scheduler_address)
    assert code == 6
    assert "has no workers; start some: dask worker" in document["error"]["message"]
    assert not (project / ".onnxport").exists()


def test_without_dask_the_line_that_mends_it_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, document = on("tcp://127.0.0.1:1")
    assert code == 5
    assert "pip install 'onnxport[distributed]'" in document["error"]["message"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--executor", "dask"), "needs a scheduler"),
        (("--scheduler", "tcp://a:1"), "give --executor dask"),
        (("--executor", "dask", "--scheduler", "localhost"), "not the address of a Dask scheduler"),
        (("--executor", "dask", "--scheduler", "tcp://a:1", "--jobs", "2"), "apply to this machine only"),
    ],
)
def test_options_that_say_nothing_together(options: tuple[str, ...], says: str, project: Path) -> None:
    code, document = run(*options)
    assert code == 2
    assert says in document["error"]["message"]


@pytest.fixture
def task(project: Path) -> Task:
    model, step = Artifact.open("digits.onnx"), Step(TARGETS["ort"], TARGETS["ort"].params())
    return Task("digits/plain", model, (step,), None, ValidateParams(inputs="samples"), True, Path("room"))


def test_a_parcel_opens_elsewhere_as_it_was(task: Task, tmp_path: Path) -> None:
    parcel = Parcel.of(task)
    assert [(bundle.root, bundle.names) for bundle in parcel.bundles] == [
        (Path(), ("digits.onnx",)),
        (Path(), ("samples/0.npz", "samples/1.npz", "samples/2.npz")),
    ]
    opened = parcel.open([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert opened.origin.path == tmp_path / "a" / "digits.onnx"
    assert opened.validation is not None
    assert opened.validation.inputs == tmp_path / "b" / "samples"
    assert opened.output == tmp_path / "c" / "model.ort"
    assert str(Path.cwd()) not in parcel.task.decode("latin-1")


def test_a_framework_s_model_travels_with_all_of_its_files(project: Path, tmp_path: Path) -> None:
    folder = project / "saved"
    (folder / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (folder / name).write_bytes(b"x")
    task = Task("s/export", Source.of("saved"), (), ExportParams(), None, False, Path("room"))
    parcel = Parcel.of(task)
    assert [bundle.names for bundle in parcel.bundles] == [
        ("saved/saved_model.pb", "saved/variables/variables.index")
    ]
    opened = parcel.open([tmp_path / "a"], tmp_path / "c").origin
    assert isinstance(opened, Source)
    assert (opened.name, opened.files[0]) == (
        str(tmp_path / "a" / "saved"),
        tmp_path / "a" / "saved" / "saved_model.pb",
    )


def test_what_needs_more_than_files_stays_here(task: Task) -> None:
    def step(stage: Any, **options: Any) -> dict[str, Any]:
        return {"steps": (Step(stage, stage.params(**options)),)}

    source = Source("models:build", "python", (Path("models.py"),), is_factory=True)
    for change in (
        {"steps": (), "export": ExportParams(), "origin": source},
        {"validation": ValidateParams(metric="mine:score")},
        {"validation": ValidateParams(report_tensors="worst.npz")},
        {"validation": ValidateParams(inputs="nowhere")},
        step(QUANTIZE, precision="int8", calib="samples", scheduler="tcp://a:1"),
        step(OPTIMIZE, level="ort-all"),
        step(TARGETS["tflite"], route="onnx2tf"),
    ):
        with pytest.raises(NotPortable):
            Parcel.of(replace(task, **change))
