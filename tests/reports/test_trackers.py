"""`--report mlflow:EXPERIMENT` and `wandb:PROJECT`: what the trackers hold afterwards.

`pip install 'onnxport[test-trackers]'` brings both; tests of one that is missing are skipped.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from onnxport.cli.commands import cli
from onnxport.core.errors import MACHINE_FAILED, MISSING_DEPENDENCY, USAGE
from onnxport.reports.trackers import Tracker, tracker_of

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow-skinny")
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, where both trackers write to folders."""
    shutil.copy(DIGITS, tmp_path / "digits.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/store")
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path


def onnxport(*arguments: str) -> int:
    code: int = cli.main(list(arguments), standalone_mode=False)
    return code


def mlflow_runs(experiment: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient()
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return sorted(client.search_runs([found.experiment_id]), key=lambda run: run.info.run_name)


def test_only_names_of_trackers_mean_one() -> None:
    assert tracker_of(Path("mlflow:digits")) == Tracker("mlflow", "digits")
    assert tracker_of(Path("wandb:a b/c.d")) == Tracker("wandb", "a b/c.d")
    assert [tracker_of(Path(each)) for each in ("mlflow.json", "out/mlflow:x.json", "s3:x", "mlflow")] == [
        None
    ] * 4


@needs_mlflow
def test_a_conversion_is_a_run_of_mlflow_with_its_figures_and_its_report(project: Path) -> None:
    assert (
        onnxport("convert", "digits.onnx", "--to", "ort", "--report", "mlflow:digits", "--report", "r.json")
        == 0
    )
    report = json.loads((project / "r.json").read_text())
    (run,) = mlflow_runs("digits")
    assert (run.info.run_name, run.info.status) == ("digits.ort", "FINISHED")
    (artifact,) = report["artifacts"]
    assert run.data.metrics["size_bytes"] == artifact["size"]
    assert run.data.metrics["cosine/logits"] == pytest.approx(1)
    assert run.data.params["verdict"] == "proven"
    assert run.data.params["sha256"] == artifact["digest"]
    kept = Path(run.info.artifact_uri.removeprefix("file://")) / "report.json"
    assert json.loads(kept.read_text())["artifacts"] == report["artifacts"]


@needs_mlflow
def test_an_artefact_over_its_budget_is_a_failed_run(project: Path) -> None:
    Path("pipeline.yaml").write_text(
        "version: 1\nmodel: digits.onnx\nreports: ['mlflow:all models']\n"
        "targets:\n  large: {to: ort, max_size: 1kB}\n  kept: {to: ort, max_load: 60s}\n"
    )
    assert onnxport("run", "pipeline.yaml") == 1
    kept, large = mlflow_runs("all models")
    assert [(run.info.run_name, run.info.status) for run in (kept, large)] == [
        ("digits/kept", "FINISHED"),
        ("digits/large", "FAILED"),
    ]
    assert large.data.params["verdict"] == "over budget"
    assert large.data.metrics["limit/max_size"] == 1000 < large.data.metrics["size_bytes"]
    assert kept.data.metrics["load_ms"] > 0


@needs_mlflow
def test_a_wrong_artefact_is_a_failed_run(project: Path) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load("digits.onnx")
    bias = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 1)
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, "wrong.onnx")
    assert onnxport("validate", "digits.onnx", "wrong.onnx", "--report", "mlflow:digits") == 1
    (run,) = mlflow_runs("digits")
    assert (run.info.status, run.data.params["verdict"]) == ("FAILED", "not equivalent")


@needs_mlflow
def test_a_bench_is_a_run_for_each_row(project: Path) -> None:
    assert (
        onnxport("bench", "digits.onnx", "--runs", "6", "--threads", "1,2", "--report", "mlflow:speed") == 0
    )
    runs = mlflow_runs("speed")
    assert sorted(run.data.params["threads"] for run in runs) == ["1", "2"]
    assert all(run.data.metrics["latency_ms"] > 0 and run.data.metrics["memory_bytes"] > 1e6 for run in runs)


@needs_mlflow
def test_a_server_that_is_away_leaves_the_artefact_and_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert onnxport("convert", "digits.onnx", "--to", "ort", "--report", "mlflow:digits") == MACHINE_FAILED
    assert (project / "digits.ort").is_file()
    assert "MLflow did not take the report; everything else is done" in capsys.readouterr().err


@needs_wandb
def test_a_conversion_is_an_offline_run_of_weights_and_biases(project: Path) -> None:
    assert (
        onnxport("convert", "digits.onnx", "--to", "ort", "--report", "wandb:digits", "--report", "r.json")
        == 0
    )
    (log,) = (project / "wandb").glob("offline-run-*/*.wandb")
    content = log.read_bytes()
    size = str(json.loads((project / "r.json").read_text())["artifacts"][0]["size"]).encode()
    for part in (b"digits.ort", b"size_bytes", b"cosine/logits", b"proven", size, b"report.json"):
        assert part in content, part


def test_a_tracker_that_is_not_installed_is_said_before_the_work(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    code = onnxport("convert", "digits.onnx", "--to", "ort", "--report", "wandb:digits")
    assert code == MISSING_DEPENDENCY
    assert "pip install 'onnxport[wandb]'" in capsys.readouterr().err
    assert not (project / "digits.ort").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "digits.onnx", "--to", "ort", "--report", "mlflow:"),
        ("profile", "digits.onnx", "--report", "wandb:x"),
    ],
)
def test_what_a_tracker_cannot_take_is_wrong_usage(
    arguments: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert onnxport(*arguments) == USAGE
    assert not list(project.glob("*_optimized.onnx"))
