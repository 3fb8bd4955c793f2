"""`onnxport inspect`: what is in a file, and what is unusual about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs
from onnxport.inspection import inspect_model
from tests.cli.sandbox import DIGITS, Sandbox


def test_onnx(sandbox: Sandbox) -> None:
    found = sandbox.run("inspect", "model.onnx", "--json").document
    assert (found["format"], found["opsets"], found["ir_version"]) == ("onnx", {"ai.onnx": 17}, 8)
    plain = {"dtype": "float32", "scale": None, "zero_point": None}
    assert found["inputs"] == [{"name": "image", "shape": ["N", 1, 8, 8]} | plain]
    assert found["outputs"] == [{"name": "logits", "shape": ["N", 10]} | plain]
    assert found["operators"] == {
        "BatchNormalization": 2,
        "Conv": 2,
        "Relu": 2,
        "Flatten": 1,
        "Gemm": 1,
        "MaxPool": 1,
    }
    assert found["dynamic"] == ["image[0] N"]
    assert found["unusual"] == []
    assert found["manifest"] is None
    weights = [numpy_helper.to_array(tensor) for tensor in onnx.load(DIGITS).graph.initializer]
    assert found["parameters"] == sum(array.size for array in weights)
    assert found["size"] == DIGITS.stat().st_size


def test_text_has_a_line_per_subject(sandbox: Sandbox) -> None:
    lines = sandbox.run("inspect", "model.onnx").stdout.splitlines()
    assert lines[0] == "model.onnx   onnx"
    assert "  inputs      image: float32[N, 1, 8, 8]" in lines
    assert "  operators   BatchNormalization 2, Conv 2, Relu 2, Flatten 1, Gemm 1, MaxPool 1" in lines
    assert "  unusual     nothing" in lines


@pytest.mark.parametrize("target", ["tflite", "ort"])
def test_artefact_of_ours(target: str, sandbox: Sandbox) -> None:
    sandbox.run("convert", "model.onnx", "--to", target, "--no-validate")
    found = sandbox.run("inspect", f"model.{target}", "--json").document
    assert found["format"] == target
    assert found["inputs"][0]["name"] == "image"
    assert found["inputs"][0]["dtype"] == "float32"
    assert found["outputs"][0]["name"] == "logits"
    convolutions = {"tflite": "CONV_2D", "ort": "com.microsoft::FusedConv"}
    assert found["operators"][convolutions[target]] == 2
    # BatchNormalization is folded away, so a little less than the source has.
    assert 9_000 < found["parameters"] <= 10_122
    assert found["manifest"]["made_by"]["onnxport"]


def test_integers_at_the_border_are_shown_with_their_scale(sandbox: Sandbox) -> None:
    """An app feeds and reads int8, whatever the source had; LiteRT itself says what the file holds."""
    (sandbox.folder / "test.npz").write_bytes(DIGITS.with_name("test.npz").read_bytes())
    asked = ("--precision", "int8", "--calib", "test.npz", "--io", "int8", "--no-validate")
    done = sandbox.run("convert", "model.onnx", "--to", "tflite", "-o", "made.tflite", *asked)
    assert done.code == 0, done.stderr
    interpreter = Interpreter(str(sandbox.folder / "made.tflite"))
    found = sandbox.run("inspect", "made.tflite", "--json").document
    lines = sandbox.run("inspect", "made.tflite").stdout.splitlines()
    for kind in ("input", "output"):
        (detail,) = getattr(interpreter, f"get_{kind}_details")()
        (port,) = found[f"{kind}s"]
        scale, zero_point = detail["quantization"]
        assert (port["dtype"], port["zero_point"]) == ("int8", zero_point)
        assert port["scale"] == pytest.approx(scale)
        (line,) = [each for each in lines if each.startswith(f"  {kind}s ")]
        assert ": int8[" in line
        assert line.endswith(f"   scale {scale:.6g}, zero point {zero_point}")


def test_an_artefact_says_with_which_options_it_was_made(sandbox: Sandbox) -> None:
    asked = ("--layout", "nhwc", "--normalization", "image=127.5/127.5", "--shape", "image=1,1,8,8")
    done = sandbox.run(
        "convert", "model.onnx", "--to", "tflite", "-o", "made.tflite", *asked, "--no-validate"
    )
    assert done.code == 0, done.stderr
    (line,) = [
        each for each in sandbox.run("inspect", "made.tflite").stdout.splitlines() if "made with" in each
    ]
    assert "tflite " in line
    assert "layout=nhwc" in line
    assert 'normalization={"image": [[127.5], [127.5]]}' in line
    assert "allow_custom_ops" not in line, "what was not asked for is left out"


def test_foreign_ort_file_bound_to_one_machine_is_unusual(tmp_path: Path) -> None:
    import onnxruntime

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x) => (float[1,16,8,8] y)'
        " <float[16,16,1,1] w> { y = Conv(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(onnx.numpy_helper.to_array(ones()), "w"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "bound.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    operators = inspect_model(tmp_path / "bound.ort").operators
    if not any("nchwc" in operator for operator in operators):
        pytest.skip("this machine's ONNX Runtime makes no such file")
    assert "one kind of CPU" in "".join(inspect_model(tmp_path / "bound.ort").unusual)


def ones() -> onnx.TensorProto:
    return helper.make_tensor("w", TensorProto.FLOAT, [16, 16, 1, 1], [1.0] * 256)


def float64(model: onnx.ModelProto) -> None:
    model.CopyFrom(parsed("g (double[2] x) => (double[2] y) { y = Neg(x) }"))


def old_opset(model: onnx.ModelProto) -> None:
    model.CopyFrom(parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }", opset=9))


def weights_as_inputs(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))


def stale_shape(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, 8]))


def foreign_domain(model: onnx.ModelProto) -> None:
    model.graph.node[1].domain = "com.acme"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))


def control_flow(model: onnx.ModelProto) -> None:
    model.CopyFrom(
        parsed(
            "g (bool c, float[2] x) => (float[2] y) {"
            " y = If(c) <then_branch = t () => (float[2] a) { a = Neg(x) },"
            " else_branch = e () => (float[2] b) { b = Abs(x) }> }"
        )
    )


def quantized(model: onnx.ModelProto) -> None:
    model.CopyFrom(
        parsed(
            "g (float[2] x) => (float[2] y) <float s = {0.5}, int8 z = {0}>"
            " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
        )
    )


def functions(model: onnx.ModelProto) -> None:
    model.CopyFrom(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.twice(x) }'
            ' <domain: "own", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }'
        )
    )


def strings(model: onnx.ModelProto) -> None:
    model.CopyFrom(graphs.string_split())


def parsed(graph: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}')


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (old_opset, "opset 9 is old"),
        (float64, "values are float64"),
        (strings, "values are string"),
        (weights_as_inputs, "4 weights are inputs too"),
        (stale_shape, "1 declared shapes contradict the graph, 'hidden' is the first"),
        (foreign_domain, "operators of the domain com.acme: Relu"),
        (control_flow, "control flow: 1 If"),
        (quantized, "quantized: 2 QuantizeLinear and DequantizeLinear nodes"),
        (functions, "1 model-local functions"),
    ],
)
def test_unusual(change: Callable[[onnx.ModelProto], Any], says: str, tmp_path: Path) -> None:
    model = graphs.mlp()
    onnx.save(model, tmp_path / "plain.onnx")
    change(model)
    onnx.save(model, tmp_path / "changed.onnx")
    assert inspect_model(tmp_path / "plain.onnx").unusual == ()
    unusual = inspect_model(tmp_path / "changed.onnx").unusual
    assert len(unusual) == 1, unusual
    assert says in unusual[0]


def test_external_data_is_named_and_counted(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    found = inspect_model(path)
    assert found.files == ("model.onnx", "model.onnx.data")
    assert found.size == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert "weights are in model.onnx.data" in found.unusual[0]


def test_operators_in_branches_and_functions_are_counted(tmp_path: Path) -> None:
    model = graphs.mlp()
    control_flow(model)
    onnx.save(model, tmp_path / "branches.onnx")
    assert inspect_model(tmp_path / "branches.onnx").operators == {"Abs": 1, "If": 1, "Neg": 1}
    functions(model)
    onnx.save(model, tmp_path / "functions.onnx")
    assert inspect_model(tmp_path / "functions.onnx").operators == {"Add": 1, "own::twice": 1}


def test_what_a_model_does_not_need_is_unusual(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 32] x, float[N, 32] left) => (float[N, 32] y) {
            h = MatMul (x, w)
            dead = Add (left, h)
            k = MatMul (h, again)
            y = MatMul (k, other)
        }"""
    )
    same, other = np.ones((32, 32), np.float32), np.ones((32, 32), np.float32)
    other[-1, -1] = 2
    for name, array in (("w", same), ("again", same), ("other", other)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "m.onnx")
    assert inspect_model(tmp_path / "m.onnx").unusual == (
        "no output depends on the input 'left' (optimize --prune-unused)",
        "nodes that no output needs: 1",
        "duplicate weights: 1, 4,096 bytes",
    )


def test_plan_has_the_peak_the_work_and_its_nodes(sandbox: Sandbox) -> None:
    run = sandbox.run("inspect", "model.onnx", "--plan")
    assert "peak        16.4 kB of activations, at 'bn2'" in run.stdout
    assert "  arena       16.4 kB for 6 buffers" in run.stdout.splitlines()
    assert any(line.split()[:2] == ["conv2", "Conv"] for line in run.stdout.splitlines())
    plan = sandbox.run("inspect", "model.onnx", "--plan", "--shape", "image=2,1,8,8", "--json").document[
        "plan"
    ]
    assert plan["peak"] == 2 * 16_384
    assert [node["name"] for node in plan["nodes"]][:3] == ["conv1", "bn1", "relu1"]
    assert {"offset", "size", "first", "last", "names"} == plan["buffers"][0].keys()


def test_plan_goes_with_no_runtimes(sandbox: Sandbox) -> None:
    run = sandbox.run("inspect", "model.onnx", "--plan", "--runs-on", "ort-cpu")
    assert run.code == 2
    assert "--runs-on cannot be combined with --plan" in run.stderr
