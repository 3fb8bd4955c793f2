"""Small QDQ networks against ONNX Runtime: integer kernels where TFLite has them, and never another answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxport
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.inspection import inspect_model
from onnxport.runtimes.litert import TfliteRuntime
from onnxport.runtimes.options import RuntimeOptions
from tests.conformance.tflite import Array, Conformance
from tests.converters.tflite.models import run_onnx
from tests.converters.tflite.qdq import Network

_BEYOND = 3  # times what calibration saw: real inputs go beyond
Family = Callable[[Network], object]


def _conv(net: Network, channels: int = 8, groups: int = 1, **attributes: Any) -> str:
    x = net.input(2, 8, 9, 7)
    return net.node("Conv", x, net.weights(channels, 8 // groups, 3, 3), group=groups, **attributes)


def _concat(net: Network) -> str:
    """Operands whose grids differ from each other's and from the result's; one lost its Relu to its grid."""
    a = net.relu_in_the_grid(_conv(net, pads=[1, 1, 1, 1]))
    b = net.node("Tanh", net.input(2, 4, 9, 7))
    return net.node("Concat", a, b, axis=1)


def _relu_lost_to_a_reshape(net: Network) -> str:
    a = net.relu_in_the_grid(_conv(net))
    return net.node("Sub", net.node("Reshape", a, net.constant(np.array([2, -1]))), net.input(2, 8 * 7 * 5))


# Integer kernels but for the ends.
INTEGER: Mapping[str, Family] = {
    "conv": _conv,
    "conv padded": lambda net: _conv(net, pads=[1, 1, 1, 1], strides=[2, 2]),
    "conv grouped": lambda net: _conv(net, 16, groups=2),
    "depthwise": lambda net: _conv(net, 8, groups=8),
    "depthwise multiplied": lambda net: _conv(net, 16, groups=8, pads=[1, 1, 1, 1]),
    "conv 1-D": lambda net: net.node(
        "Conv", net.input(2, 8, 20), net.weights(4, 8, 5), pads=[2, 2], strides=[2]
    ),
    "conv per tensor": lambda net: net.node(
        "Conv", net.input(1, 4, 6, 6), net.weights(5, 4, 3, 3, axis=None)
    ),
    "conv relu": lambda net: net.node("Relu", _conv(net)),
    "conv transpose": lambda net: net.node(
        "ConvTranspose", net.input(1, 4, 5, 6), net.weights(4, 6, 2, 2, axis=1), strides=[2, 2]
    ),
    "matmul constant": lambda net: net.node("MatMul", net.input(2, 5, 8), net.weights(8, 6, axis=1)),
    "matmul": lambda net: net.node("MatMul", net.input(2, 3, 5, 8), net.input(2, 3, 8, 4)),
    "gemm": lambda net: net.node("Gemm", net.input(3, 8), net.weights(6, 8), transB=1),
    "gemm of a flattened image": lambda net: net.node(
        "Gemm", net.node("Flatten", _conv(net)), net.weights(6, 8 * 7 * 5), transB=1
    ),
    "add": lambda net: net.node("Add", net.input(2, 4, 5), net.input(2, 4, 5)),
    "add broadcast": lambda net: net.node("Add", net.input(2, 4, 5, 3), net.input(4, 1, 1)),
    "add constant": lambda net: net.node(
        "Add", net.input(2, 4, 5), net.weights(4, 1, axis=None, zero_point=3)
    ),
    "sub": lambda net: net.node("Sub", net.input(2, 4, 5), net.input(2, 4, 5)),
    "mul": lambda net: net.node("Mul", net.input(2, 4, 5), net.input(2, 4, 5)),
    "relu": lambda net: net.node("Relu", net.input(2, 4, 5)),
    "leaky relu": lambda net: net.node("LeakyRelu", net.input(2, 4, 5), alpha=0.1),
    "tanh": lambda net: net.node("Tanh", net.input(2, 4, 5)),
    "gelu": lambda net: net.node("Gelu", net.input(2, 4, 5)),
    "mean": lambda net: net.node("GlobalAveragePool", net.input(2, 4, 5, 6)),
    "transpose": lambda net: net.node(
        "MatMul", net.node("Transpose", net.input(2, 8, 5), perm=[0, 2, 1]), net.weights(8, 6, axis=1)
    ),
    "reshape": lambda net: net.node("Reshape", _conv(net), net.constant(np.array([2, 4, -1]))),
    "slice": lambda net: net.node(
        "Slice", _conv(net), *(net.constant(np.array(each)) for each in ([1], [4], [2]))
    ),
    "pad": lambda net: net.node("Pad", _conv(net), net.constant(np.array([0, 0, 1, 1, 0, 0, 2, 1]))),
    "gather": lambda net: net.node("Gather", _conv(net), net.constant(np.array([3, 0, 3])), axis=1),
    "resize nearest": lambda net: net.node(
        "Resize",
        _conv(net),
        "",
        net.constant(np.array([1, 1, 2, 2], np.float32)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "squeeze": lambda net: net.node("Squeeze", net.input(2, 1, 5), net.constant(np.array([1]))),
    "depth to space": lambda net: net.node("DepthToSpace", _conv(net), blocksize=2),
    "split": lambda net: net.node("Split", _conv(net), axis=1, outputs=2, num_outputs=2),
}
# Some of it in floats, since no integer kernel gives the answer on the model's grids.
MIXED: Mapping[str, Family] = {
    "concat": _concat,
    "concat of other grids, unquantized": lambda net: net.node(
        "Sin", net.node("Concat", net.input(2, 4), net.node("Tanh", net.input(2, 3)), axis=1)
    ),
    "relu lost to a reshape": _relu_lost_to_a_reshape,
    "max pool": lambda net: net.node("MaxPool", _conv(net), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "average pool": lambda net: net.node("AveragePool", _conv(net), kernel_shape=[2, 2]),
    "relu behind max pool": lambda net: net.node(
        "Relu", net.node("MaxPool", _conv(net), kernel_shape=[2, 2], strides=[2, 2])
    ),
    "clip behind max pool": lambda net: net.node(
        "Clip",
        net.node("MaxPool", _conv(net), kernel_shape=[2, 2], stays_float=True),
        net.constant(np.float32(0)),
        net.constant(np.float32(6)),
    ),
    "relu behind average pool": lambda net: net.node(
        "Relu", net.node("AveragePool", _conv(net), kernel_shape=[2, 2], stays_float=True)
    ),
    "hard swish": lambda net: net.node("HardSwish", net.input(2, 4, 5)),
    "softmax": lambda net: net.node("Softmax", net.input(3, 9)),
    "sigmoid": lambda net: net.node("Sigmoid", net.input(3, 9)),
    "silu": lambda net: net.node("Mul", (x := net.input(3, 9)), net.node("Sigmoid", x)),
    "sqrt": lambda net: net.node("Sqrt", net.input(3, 9, positive=True)),
    "log": lambda net: net.node("Log", net.input(3, 9, positive=True)),
    "div": lambda net: net.node("Div", net.input(3, 9), net.input(3, 9, positive=True)),
    "exp": lambda net: net.node("Exp", net.input(3, 9)),
    "abs": lambda net: net.node("Abs", net.input(3, 9)),
    "neg": lambda net: net.node("Neg", net.input(3, 9)),
    "max": lambda net: net.node("Max", net.input(3, 9), net.input(3, 9)),
    "clip": lambda net: net.node(
        "Clip", _conv(net), net.constant(np.float32(0)), net.constant(np.float32(6))
    ),
    "hard sigmoid": lambda net: net.node("HardSigmoid", net.input(3, 9)),
    "resize linear": lambda net: net.node(
        "Resize", _conv(net), "", net.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear"
    ),
    "reduce max": lambda net: net.node("ReduceMax", _conv(net), net.constant(np.array([2, 3])), keepdims=1),
    "tile": lambda net: net.node("Tile", net.input(2, 3), net.constant(np.array([2, 2]))),
    "expand": lambda net: net.node("Expand", net.input(2, 1, 3), net.constant(np.array([2, 4, 3]))),
    "weights with a zero point": lambda net: net.node(
        "Conv", net.input(1, 4, 6, 6), net.weights(5, 4, 3, 3, axis=None, zero_point=5)
    ),
    "weights by input channel": lambda net: net.node("MatMul", net.input(3, 8), net.weights(8, 6, axis=0)),
    "layer norm": lambda net: net.node(
        "LayerNormalization", net.input(3, 9), net.constant(np.ones(9, np.float32))
    ),
    "pow": lambda net: net.node("Pow", net.input(3, 9), net.constant(np.float32(2))),
    "prelu": lambda net: net.node(
        "PRelu", net.input(1, 3, 4, 5), net.constant(np.full((3, 1, 1), 0.2, np.float32))
    ),
    "conv 3-D": lambda net: net.node("Conv", net.input(1, 2, 5, 5, 5), net.weights(3, 2, 3, 3, 3)),
}


@pytest.mark.parametrize(
    "kind", ["u8", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("s8", "s16"))]
)
@pytest.mark.parametrize("family", [*INTEGER, *MIXED])
def test_quantized_nodes_compute_what_onnx_runtime_does(
    conformance: Conformance, tmp_path: Path, family: str, kind: str
) -> None:
    net = Network(np.random.default_rng(5), kind)
    (INTEGER | MIXED)[family](net)
    model, step = net.quantized()
    operators = conformance.convert(model, tmp_path / "model.tflite")
    if family in INTEGER and kind != "s16":
        ends = operators["QUANTIZE"] + operators["DEQUANTIZE"]
        assert ends == len(net.feeds) + 1, operators
    feeds = [net.feeds, {name: array * _BEYOND for name, array in net.feeds.items()}]
    for delegate, steps in (("xnnpack", 1), ("none", 2)) if kind != "s16" else (("xnnpack", 4), ("none", 4)):
        for given, wanted in _answers(tmp_path / "model.tflite", model, feeds, delegate):
            assert np.abs(given - wanted).max() <= steps * step * 1.01


@pytest.mark.parametrize("io", ["int8", "uint8"])
def test_inputs_and_outputs_may_be_the_integers_themselves(tmp_path: Path, io: str) -> None:
    net = Network(np.random.default_rng(5))
    _conv(net)
    model, _ = net.quantized()
    model.save(tmp_path / "model.onnx")
    answers = []
    for each in ("float", io):
        output = tmp_path / f"{each}.tflite"
        onnxport.convert_model(
            tmp_path / "model.onnx", "tflite", output, io=each, layout="nhwc", validate=False
        )
        with TfliteRuntime(output) as runtime:
            given = runtime.run({"x0": net.feeds["x0"].transpose(0, 2, 3, 1)})
            details = runtime._interpreter.get_input_details() + runtime._interpreter.get_output_details()
            remarks = runtime.remarks
        answers.append(next(iter(given.values())))
    assert {detail["dtype"] for detail in details} == {np.dtype(io).type}
    assert np.array_equal(*answers)
    # Who reads the report or `onnxport inspect` sees float32 ports, and has to know better.
    assert len(remarks) == len(details)
    assert set(remarks) <= set(inspect_model(output).unusual)
    scale, zero_point = details[0]["quantization"]
    assert f"'x0' is {io} in the file, its value is {scale:.6g} * (integer - {zero_point})" in remarks[0]


def test_an_output_without_a_scale_cannot_be_an_integer(tmp_path: Path) -> None:
    net = Network(np.random.default_rng(5))
    net.node("Relu", net.input(3, 4))
    model, _ = net.quantized()
    proto = onnx.load_from_string(model.to_bytes())
    proto.graph.node.append(helper.make_node("Sin", [proto.graph.output[0].name], ["sine"]))
    proto.graph.output[0].name = "sine"
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(CannotConvertError, match=r"'sine'  comes from Sin and is not quantized.*extract"):
        onnxport.convert_model(tmp_path / "model.onnx", "tflite", tmp_path / "model.tflite", io="int8")


def test_a_bound_near_zero_is_no_zero(tmp_path: Path) -> None:
    """Energies are kept above 1e-7 below a logarithm: an integer MAXIMUM would take the nearest step, 0."""
    net = Network(np.random.default_rng(5))
    net.node("Relu", net.node("MatMul", net.input(3, 8), net.weights(8, 6, axis=1)))
    model, _ = net.quantized()
    proto = onnx.load_from_string(model.to_bytes())
    graph, name = proto.graph, proto.graph.output[0].name
    graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1e-7), "least"))
    graph.node.append(helper.make_node("Max", [name, "least"], ["kept"]))
    graph.node.append(helper.make_node("Log", ["kept"], ["log"]))
    graph.output[0].name = "log"
    onnx.save(proto, tmp_path / "model.onnx")
    onnxport.convert_model(tmp_path / "model.onnx", "tflite", tmp_path / "model.tflite", validate=False)
    ((given, wanted),) = _answers(
        tmp_path / "model.tflite", Model.load(tmp_path / "model.onnx"), [net.feeds], "xnnpack"
    )
    assert wanted.min() == pytest.approx(np.log(1e-7), rel=1e-5)
    assert given.min() == pytest.approx(np.log(1e-7), rel=1e-5)


def test_a_grid_of_millions_a_step_is_read_back(tmp_path: Path) -> None:
    """The compiler prints such scales as bits: 0x41729F37A0000000 (terrain's heights squared)."""
    step = np.float32(19526522)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 6]) for name in "xy"]
    stored = [
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in (("s", step), ("z", np.int8(-128)))
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    onnxport.convert_model(tmp_path / "model.onnx", "tflite", tmp_path / "model.tflite", validate=False)
    feeds = {"x": (np.array([[0, 1, 2, 100, 200, 255]]) * step).astype(np.float32)}
    ((given, wanted),) = _answers(
        tmp_path / "model.tflite", Model.load(tmp_path / "model.onnx"), [feeds], "none"
    )
    assert np.array_equal(given, wanted)
    assert wanted.max() > 4e9


def _answers(
    artefact: Path, model: Model, feeds: Sequence[dict[str, Array]], delegate: Any
) -> list[tuple[Array, Array]]:
    with TfliteRuntime(artefact, RuntimeOptions(delegate=delegate)) as runtime:
        return [
            (given, wanted)
            for feed in feeds
            for given, wanted in zip(runtime.run(feed).values(), run_onnx(model, feed).values(), strict=True)
        ]
