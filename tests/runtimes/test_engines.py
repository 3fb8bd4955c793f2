"""Engines of others as candidates: each really runs the model, and each is caught when it computes another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.runtimes.base import RunError, Runtime
from onnxport.runtimes.isolation import IsolatedRuntime
from onnxport.runtimes.options import RuntimeOptions
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
SAMPLES = DIGITS.with_name("test.npz")
ENGINES = {"tract": "tract 0.", "openvino": "OpenVINO 20", "ncnn": "ncnn 1.", "mnn": "MNN 3."}
# MNN takes epsilon for 0 where a BatchNormalization leaves it at its default of 1e-5 (docs/guide/runtimes.md).
EXACT = [name for name in ENGINES if name != "mnn"]
NOISE = 1e-4  # of logits up to 20; a wrong weight or channel moves them by more than 0.01


def opened(name: str, path: Path, threads: int = 2) -> Runtime:
    """An engine in a process of its own: MNN ends one that has loaded coremltools."""
    runtime = IsolatedRuntime(path, RuntimeOptions(runtime=name, threads=threads))
    assert runtime.inputs, "it is loaded"
    return runtime


def images(count: int) -> np.ndarray:
    with np.load(SAMPLES) as samples:
        return np.asarray(samples["image"][:count])


def expected(path: Path, feeds: dict[str, np.ndarray], names: list[str] | None = None) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(onnxruntime.InferenceSession(path, options).run(names, feeds))


@pytest.fixture(scope="module")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits with their epsilons written out, which all four engines compute right."""
    model = onnx.load(DIGITS)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("epsilon", 1e-5))
    path = tmp_path_factory.mktemp("explicit") / "digits.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_answers_as_onnx_runtime_does_at_any_batch(name: str, explicit: Path) -> None:
    with opened(name, explicit, threads=1) as runtime, onnxport.load(explicit) as reference:
        assert runtime.name.startswith(ENGINES[name])
        assert runtime.inputs == reference.inputs
        assert runtime.outputs[0].name == "logits"
        for count in (1, 5):
            feeds = {"image": images(count)}
            answer = runtime.run(feeds)["logits"]
            assert answer.dtype == np.float32
            np.testing.assert_allclose(answer, expected(explicit, feeds)[0], atol=NOISE)


@pytest.mark.parametrize("name", ENGINES)
def test_intermediate_values_are_those_of_onnx_runtime(name: str, explicit: Path, tmp_path: Path) -> None:
    shown = onnx.load(explicit)
    shown.graph.output.append(onnx.ValueInfoProto(name="relu1"))
    onnx.save(shown, tmp_path / "shown.onnx")
    feeds = {"image": images(2)}
    with opened(name, explicit) as runtime:
        assert "relu1" in runtime.taps
        assert "logits" not in runtime.taps
        given = runtime.run(feeds, taps=["relu1"])
        with pytest.raises(UsageError, match="no intermediate values"):
            runtime.run(feeds, taps=["surely absent"])
    for value, right in zip(
        (given["logits"], given["relu1"]), expected(tmp_path / "shown.onnx", feeds), strict=True
    ):
        np.testing.assert_allclose(value, right, atol=NOISE)


@pytest.mark.parametrize("name", ENGINES)
def test_one_changed_weight_is_caught(name: str, explicit: Path, tmp_path: Path) -> None:
    changed = onnx.load(explicit)
    weight = next(each for each in changed.graph.initializer if each.name == "3.weight")
    values = numpy_helper.to_array(weight).copy()
    values[0, 0] += 0.05
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(changed, tmp_path / "changed.onnx")
    np.savez(tmp_path / "few.npz", image=images(4))
    params = ValidateParams(inputs=tmp_path / "few.npz", candidate_runtime={"runtime": name})
    with Judge(Artifact.open(explicit), params) as judge:
        same = judge.verdict(Artifact.open(explicit))
        other = judge.verdict(Artifact.open(tmp_path / "changed.onnx"))
    assert (same.verdict, other.verdict) == ("proven", "not equivalent")
    assert same.candidate.runtime.startswith(ENGINES[name])


def single(
    path: Path, op: str, dtype: int, shape: list[object], domain: str = "", **attributes: object
) -> Path:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], name="only", domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, shape)],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("name", ENGINES)
def test_an_operator_that_an_engine_lacks_is_its_own_cause_in_one_line(name: str, tmp_path: Path) -> None:
    path = single(tmp_path / "m.onnx", "Frobnicate", TensorProto.FLOAT, [2, 3], "acme")
    with pytest.raises(InputError) as refused:
        opened(name, path)
    said = str(refused.value)
    assert f"cannot load {path}" in said
    assert "Frobnicate" in said
    assert "\n" not in said
    assert "Stack backtrace" not in said


def test_an_epsilon_that_mnn_leaves_out_is_said(explicit: Path, tmp_path: Path) -> None:
    """The words hold: without an epsilon, MNN's answer is that of a file which says 0."""
    pytest.importorskip("MNN")
    zero = onnx.load(explicit)
    for node in zero.graph.node:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f = 0.0
    onnx.save(zero, tmp_path / "zero.onnx")
    feeds = {"image": images(4)}
    with opened("mnn", DIGITS) as runtime:
        assert runtime.remarks[0].endswith(
            "as 'bn1' and 1 more: write it out, or fuse it by onnxport optimize"
        )
        assert np.abs(runtime.run(feeds)["logits"] - expected(tmp_path / "zero.onnx", feeds)[0]).max() < NOISE
        assert np.abs(runtime.run(feeds)["logits"] - expected(explicit, feeds)[0]).max() > 10 * NOISE
    with opened("mnn", explicit) as runtime:
        assert runtime.remarks == ()


@pytest.mark.parametrize("name", ["ncnn", "mnn"])
def test_a_type_that_an_engine_lacks_is_refused(name: str, tmp_path: Path) -> None:
    path = single(tmp_path / "m.onnx", "Abs", TensorProto.DOUBLE, [2, 3])
    with pytest.raises(InputError, match="'x' is float64, which it neither takes nor returns"):
        opened(name, path)


def test_integers_that_mnn_would_cut_are_refused(tmp_path: Path) -> None:
    path = single(tmp_path / "m.onnx", "Abs", TensorProto.INT64, [2])
    with opened("mnn", path) as runtime:
        answer = runtime.run({"x": np.array([-3, 7])})["y"]
        assert answer.dtype == np.int64
        np.testing.assert_array_equal(answer, [3, 7])
        with pytest.raises(RunError, match="integers have 32 bits"):
            runtime.run({"x": np.array([1 << 40, 0])})


@pytest.mark.parametrize("name", EXACT)
def test_feeds_that_do_not_fit_are_the_callers_fault(name: str) -> None:
    with opened(name, DIGITS) as runtime:
        with pytest.raises(UsageError, match="lack"):
            runtime.run({})
        with pytest.raises(UsageError, match="is float64, the model takes float32"):
            runtime.run({"image": images(1).astype(np.float64)})


def test_nothing_is_written_reported_or_installed(tmp_path: Path, explicit: Path) -> None:
    """OpenVINO reports its use and MNN's converter installs packages unless they are kept from it."""
    program = (
        "import sys, numpy as np, onnxport\n"
        "for name in sys.argv[2:]:\n"
        "    with onnxport.load(sys.argv[1], runtime=name) as model:\n"
        "        model.run({'image': np.zeros((1, 1, 8, 8), np.float32)})\n"
        "bad = ('openvino_telemetry', 'MNN.tools.utils.log', 'aliyun', 'torch', 'pnnx')\n"
        "print([name for name in bad if name in sys.modules])\n"
    )
    # onnxruntime keeps a number of its own there, and is no part of this.
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    pip = bin_folder / "pip"
    pip.write_text(f"#!/bin/sh\ntouch {tmp_path}/pip-ran\n")
    pip.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    environment = os.environ | {
        "HOME": str(home),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, explicit, *ENGINES],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "[]"
    assert [path.name for path in home.iterdir() if path.name != ".cache"] == []
    assert not (tmp_path / "pip-ran").exists()
