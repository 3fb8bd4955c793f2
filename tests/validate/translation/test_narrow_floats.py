"""Files of float16 and bfloat16 are proven to be their float32 source; a constant that is no rounding is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.validate.translation.proof import Proof, prove
from onnxport.validate.translation.tflite.artefact import prove_tflite
from tests.validate.models import parsed

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"
PRECISIONS = {"fp16": "float16", "bf16": "bfloat16"}


def images() -> list[dict[str, np.ndarray]]:
    with np.load(DIGITS / "test.npz") as stored:
        return [{"image": stored["image"][place : place + 1]} for place in range(2)]


def made(precision: str, folder: Path) -> Path:
    output = folder / f"{precision}.onnx"
    onnxport.quantize_model(SOURCE, precision, output, validate=False)
    return output


def proof(path: Path, precision: str) -> Proof:
    return prove(Model.load(SOURCE), Model.load(path), images(), rounding=PRECISIONS[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_right_file_is_proven(precision: str, tmp_path: Path) -> None:
    found = proof(made(precision, tmp_path), precision)
    assert list(found.findings) == []
    assert found.weights == 3


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_weight_off_by_two_of_its_last_bits_is_found(precision: str, tmp_path: Path) -> None:
    path = made(precision, tmp_path)
    model = onnx.load(path)
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    values = numpy_helper.to_array(weight).copy()
    values.reshape(-1).view(np.uint16)[11] += 2
    weight.raw_data = values.tobytes()
    onnx.save(model, path)
    assert "weights are more than half a step from the source's" in str(proof(path, precision))


@pytest.mark.parametrize(
    ("format_", "precision"),
    [("onnx", "fp16"), ("onnx", "bf16"), ("tflite", "fp16"), ("coreml", "fp16"), ("ort", "fp16")],
)
def test_validate_asks_the_proof(format_: str, precision: str, tmp_path: Path) -> None:
    suffix = {"coreml": "mlpackage"}.get(format_, format_)
    output = tmp_path / f"made.{suffix}"
    if format_ == "onnx":
        onnxport.quantize_model(SOURCE, precision, output, validate=False)
    else:
        onnxport.convert_model(SOURCE, format_, output, validate=False, precision=precision)
    report = onnxport.validate_model(SOURCE, output)
    assert {each.question: each.verdict for each in report.judgements}["translation"] == "proven"
    assert report.verdict == "proven"


def test_a_fault_that_fidelity_passes_is_named(tmp_path: Path) -> None:
    """A bias that is half as large again moves the digits' scores by less than rounding to bfloat16 does elsewhere."""
    path = made("bf16", tmp_path)
    model = onnx.load(path)
    bias = min(
        (each for each in model.graph.initializer if len(each.dims) == 1), key=lambda each: each.dims[0]
    )
    values = numpy_helper.to_array(bias).copy()
    place = int(np.argmax(np.abs(values.astype(np.float32))))
    values[place] = (values[place].astype(np.float32) * 1.5).astype(values.dtype)
    bias.raw_data = values.tobytes()
    onnx.save(model, path)
    found = proof(path, "bf16").faults
    assert len(found) == 1
    judged = onnxport.validate_model(SOURCE, path).judgements
    assert {each.question: each.verdict for each in judged} == {
        "fidelity": "proven",
        "quality": "measured",
        "translation": "not equivalent",
    }
    assert "biases are more than half a step from the source's" in found[0].text


def _scaled(weight: np.ndarray, scale: np.ndarray, shift: np.ndarray, *, folded: bool) -> Model:
    """A convolution whose channels are scaled and shifted, in one operator or three."""
    names = ["x", "w"] if not folded else ["x", "w", "t"]
    nodes = [helper.make_node("Conv", names, ["c" if not folded else "y"], "conv")]
    constants = {"w": weight}
    if folded:
        constants["t"] = shift.reshape(-1)
    else:
        constants |= {"s": scale, "t": shift}
        nodes += [
            helper.make_node("Mul", ["c", "s"], ["d"], "scale"),
            helper.make_node("Add", ["d", "t"], ["y"], "shift"),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 5, 5))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 8, 5, 5))],
        [numpy_helper.from_array(np.ascontiguousarray(each), name) for name, each in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Model(ir.from_proto(proto))


@pytest.mark.parametrize(("factor", "kinds"), [(1.0, set()), (1.05, {"fault"})])
def test_constants_that_are_rounded_and_then_folded_are_no_fault(factor: float, kinds: set[str]) -> None:
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((8, 3, 1, 1)).astype(np.float32)
    scale = draw.uniform(0.5, 2, (8, 1, 1)).astype(np.float32)
    shift = draw.standard_normal((8, 1, 1)).astype(np.float32)
    half = [each.astype(np.float16).astype(np.float32) for each in (weight, scale, shift)]
    folded = (half[0] * half[1][..., None]).astype(np.float16).astype(np.float32)
    folded[3] *= np.float32(factor)
    source = _scaled(weight, scale, shift, folded=False)
    found = prove(source, _scaled(folded, scale, half[2], folded=True), [], rounding="float16")
    assert {each.kind for each in found.findings} == kinds


_SHIFTED = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y)
    <float[4] w = {1, 2, 3, 4}, float[4] b = {3, 1, 4, 1}, float[4] v = {3, 2, 12, 4}> {"""


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("s = Softmax(x) p = Mul(s, w) t = Relu(p) y = Add(t, v)", set()),
        ("s = Softmax(x) p = Mul(s, w) t = Relu(p) y = Add(t, b)", {"fault"}),
    ],
)
def test_one_constant_that_is_another_is_a_fault(body: str, kinds: set[str]) -> None:
    right, other = (
        Model(ir.from_proto(onnx.parser.parse_model(f"{_SHIFTED} {each} }}")))
        for each in ("s = Softmax(x) p = Mul(s, w) t = Relu(p) y = Add(t, v)", body)
    )
    assert {each.kind for each in prove(right, other, [], rounding="float16").findings} == kinds


def _off(path: Path, output: Path) -> Path:
    """Writes the model with one weight of the largest product half as large."""
    model = onnx.load(path)
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    values = numpy_helper.to_array(weight).copy()
    place = int(np.argmax(np.abs(values)))
    values.reshape(-1)[place] /= 2
    weight.raw_data = values.tobytes()
    onnx.save(model, output)
    return output


def test_a_weight_half_as_large_is_found(tmp_path: Path) -> None:
    found = proof(_off(made("fp16", tmp_path), tmp_path / "off.onnx"), "fp16")
    assert "weights are more than half a step from the source's" in str(found)


def test_an_epsilon_and_a_mask_that_float16_cannot_hold_are_no_fault(tmp_path: Path) -> None:
    """1e-12 becomes the smallest normal number, -1e30 the largest."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Add", ["b", "epsilon"], ["c"]),
        helper.make_node("Sqrt", ["c"], ["d"]),
        helper.make_node("Add", ["d", "mask"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    mask = np.where(np.arange(8) < 5, 0, -1e30).astype(np.float32)
    weight = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    numbers = {"w": weight, "epsilon": np.float32(1e-12), "mask": mask}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (2, 8))],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()],
    )
    source, half = tmp_path / "m.onnx", tmp_path / "half.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), source)
    onnxport.quantize_model(source, "fp16", half, validate=False)
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)}
    found = prove(Model.load(source), Model.load(half), [feeds], rounding="float16")
    assert list(found.findings) == []


def test_a_package_of_float16_is_proven(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage

    output = tmp_path / "half.mlpackage"
    shape = {"image": (1, 1, 8, 8)}
    onnxport.convert_model(SOURCE, "coreml", output, validate=False, precision="fp16", shape=shape)
    found = prove_mlpackage(Model.load(SOURCE), output, images(), rounding="float16")
    assert list(found.findings) == []
    assert found.weights == 3
    found = prove_mlpackage(Model.load(SOURCE), output, images())
    assert "it is rounded to float16" in {each.text for each in found.findings}


def test_a_package_that_takes_integers_and_computes_lengths_is_proven(tmp_path: Path) -> None:
    """Core ML has 32 bits where the source has 16, and floor_div where it divides a length."""
    pytest.importorskip("coremltools")
    from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage

    model = parsed(
        "g (int16[1, 1, N] x) => (float[1, 4, M] y, int64[K] n) {"
        "f = Cast <to = 1> (x) s = Mul (f, scale) y = Conv <pads = [1, 1]> (s, w)"
        "shape = Shape <start = 2> (x) half = Div (shape, two) n = Sub (half, one) }"
    )
    constants: dict[str, Any] = {
        "scale": np.float32(2**-15),
        "w": np.random.default_rng(0).standard_normal((4, 1, 3)).astype(np.float32),
        "one": np.int64(1),
        "two": np.int64(2),
    }
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    source, output = tmp_path / "m.onnx", tmp_path / "half.mlpackage"
    onnx.save(model, source)
    onnxport.convert_model(source, "coreml", output, validate=False, precision="fp16")
    feeds = {"x": np.random.default_rng(1).integers(-(2**15), 2**15, (1, 1, 37)).astype(np.int16)}
    found = prove_mlpackage(Model.load(source), output, [feeds], rounding="float16")
    assert list(found.findings) == []
    assert found.weights == 1


def test_a_tflite_file_with_float16_weights_is_proven(tmp_path: Path) -> None:
    output = tmp_path / "half.tflite"
    onnxport.convert_model(
        SOURCE, "tflite", output, validate=False, precision="fp16", shape={"image": (1, 1, 8, 8)}
    )
    found = prove_tflite(Model.load(SOURCE), output, images(), rounding="float16")
    assert list(found.findings) == []
    assert found.weights == 3


def test_convolutions_over_time_are_proven(tmp_path: Path) -> None:
    """TFLite has them over two axes; the second one halves the time, and the last reads it as rows."""
    draw = np.random.default_rng(0)
    shapes = {"a": (24, 16, 3), "b": (24, 1, 5), "c": (32, 24, 1), "m": (32, 40)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"], pads=[1, 1]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "b"], ["r"], group=24, pads=[2, 2], strides=[2]),
        helper.make_node("Conv", ["r", "c"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "m"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array((draw.standard_normal(shape) / 4).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 16, 64]), ("y", [1, 32, 40])))
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    source, output = tmp_path / "m.onnx", tmp_path / "m.tflite"
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), source)
    onnxport.convert_model(source, "tflite", output, precision="fp16", latency=False)
    feeds = {"x": draw.standard_normal((1, 16, 64)).astype(np.float32)}
    found = prove_tflite(Model.load(source), output, [feeds], rounding="float16")
    assert list(found.findings) == []
    assert found.weights == 4
