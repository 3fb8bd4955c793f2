"""`onnxport profile`: what it tells, writes and refuses."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from pathlib import Path

import pytest

from tests.cli.sandbox import Sandbox

WORDS = ("--runs", "4", "--warmup", "1")


def test_times_are_told_of_the_nodes_of_the_model(sandbox: Sandbox) -> None:
    before = sorted(os.listdir(sandbox.folder))
    temporary = set(Path(tempfile.gettempdir()).glob("onnxport-*"))
    report = sandbox.run("profile", "model.onnx", "--json", *WORDS).document
    assert sorted(os.listdir(sandbox.folder)) == before, "the profiler's own file is gone"
    left = set(Path(tempfile.gettempdir()).glob("onnxport-*")) - temporary
    assert not [path for path in left if any(path.glob("model*.json")) or any(path.glob("optimized*"))]
    sources = {node["op"]: node["sources"] for node in report["nodes"]}
    assert sources["Conv"] == ["conv2", "bn2", "relu2"]
    assert sources["Gemm"] == ["logits"]
    assert {op for node in report["nodes"] for op in node["source_ops"]} == {
        *("BatchNormalization", "Conv", "Relu", "Flatten", "Gemm", "MaxPool")
    }
    assert report["nodes_ms"] == pytest.approx(sum(node["ms"] for node in report["nodes"]))
    assert sum(node["share"] for node in report["nodes"]) == pytest.approx(1)
    for groups in (report["by_op"], report["by_source"]):
        assert sum(group["count"] for group in groups) == len(report["nodes"])
        assert [group["ms"] for group in groups] == sorted((g["ms"] for g in groups), reverse=True)
    assert 0 < report["run_ms"] < report["profiled_ms"]


def test_text_has_the_hottest_and_the_groups(sandbox: Sandbox) -> None:
    outcome = sandbox.run("profile", "model.onnx", *WORDS)
    assert outcome.code == 0
    for title in ("hottest nodes", "by operator", "by ONNX node"):
        assert f"\n{title}\n" in outcome.stdout
    assert "conv2 + bn2 + relu2" in outcome.stdout


def test_trace_is_in_the_trace_event_format(sandbox: Sandbox) -> None:
    assert sandbox.run("profile", "model.onnx", "--trace", "trace.json", *WORDS).code == 0
    document = json.loads((sandbox.folder / "trace.json").read_text())
    assert {event["ph"] for event in document["traceEvents"]} == {"M", "X"}
    complete = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for event in complete:
        assert {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    runs = [event for event in complete if event["cat"] == "run"]
    assert [run["name"] for run in runs] == ["run 1", "run 2", "run 3", "run 4"]
    for first, second in itertools.pairwise(runs):
        within = [event for event in complete if first["ts"] <= event["ts"] < second["ts"]]
        assert len(within) == 7, "the run and its six nodes"
        assert max(event["ts"] + event["dur"] for event in within) <= second["ts"]


def test_report_is_written_in_forms(sandbox: Sandbox) -> None:
    assert sandbox.run("profile", "model.onnx", "--report", "p.html", "--report", "p.json", *WORDS).code == 0
    assert "<svg" in (sandbox.folder / "p.html").read_text()
    assert json.loads((sandbox.folder / "p.json").read_text())["format"] == "onnx"


def test_a_package_for_core_ml_is_refused(sandbox: Sandbox) -> None:
    package = sandbox.folder / "model.mlpackage"
    package.mkdir()
    (package / "Manifest.json").write_text("{}")
    outcome = sandbox.run("profile", "model.mlpackage")
    assert outcome.code == 5
    assert "Xcode" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--level", "basic", "model.ort"), "--level is for .onnx files"),
        (("--trace", "trace.txt", "model.onnx"), "ends in .json"),
        (("--source", "model.tflite", "model.onnx"), "give an .onnx file"),
        (("--runs", "2", "model.onnx"), "--runs: 2 is not allowed"),
        (("--provider", "cuda", "model.tflite"), "give xnnpack or cpu"),
        (("--preprocess", "scale=2", "model.onnx"), "--preprocess is for images in --inputs"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str, sandbox: Sandbox) -> None:
    for name in ("model.ort", "model.tflite"):
        (sandbox.folder / name).write_bytes(b"\0" * 8)
    outcome = sandbox.run("profile", *words)
    assert outcome.code == 2
    assert said in outcome.stderr


def test_a_provider_that_is_not_here(sandbox: Sandbox) -> None:
    outcome = sandbox.run("profile", "model.onnx", "--provider", "cuda")
    assert outcome.code == 5
    assert "no execution provider 'cuda'" in outcome.stderr
