"""QDQ networks of 8 and 16 bits together: TFLite's kernels know one width; what lies between two computes in floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.runtimes.litert import TfliteRuntime
from onnxport.runtimes.options import RuntimeOptions
from onnxport.validate.precision.tflite import precision
from tests.conformance.tflite import Array, Conformance
from tests.converters.tflite.models import run_onnx
from tests.converters.tflite.qdq import Network

# Of the narrow side, and of the wide one: "u16" has a zero point that is not 0, which no kernel of TFLite's has.
NARROW, WIDE = ("u8", "s8"), ("s16", "u16")
Family = Callable[[Network, str], str]


def _weights(net: Network, x: str, *shape: int, axis: int = 0, op: str = "Conv", **attributes: Any) -> str:
    return net.node(op, x, net.weights(*shape, axis=axis), **attributes)


def _resize(net: Network, x: str, **attributes: Any) -> str:
    return net.node("Resize", x, "", net.constant(np.array([1, 1, 2, 2], np.float32)), **attributes)


def _integers(net: Network, *numbers: int) -> str:
    return net.constant(np.array(numbers))


def _sine(net: Network) -> str:
    """A float that is on no grid."""
    return net.node("Sin", net.input(1, 8, 6, 6), stays_float=True)


# One input [1, 8, 6, 6]; inputs that they add are of the same width.
ONE: Mapping[str, Family] = {
    "conv": lambda net, x: _weights(net, x, 4, 8, 3, 3, pads=[1] * 4),
    "conv with a bias": lambda net, x: net.node(
        "Conv", x, net.weights(4, 8, 3, 3), net.constant(np.arange(4, dtype=np.float32))
    ),
    "conv and relu": lambda net, x: net.node(
        "Relu", _weights(net, x, 4, 8, 3, 3, stays_float=True, pads=[1] * 4)
    ),
    "conv and reshape": lambda net, x: net.node(
        "Reshape", _weights(net, x, 8, 8, 1, 1, stays_float=True), _integers(net, 1, 4, -1, 6)
    ),
    "conv and max pool": lambda net, x: net.node(
        "MaxPool", _weights(net, x, 8, 8, 1, 1, stays_float=True), kernel_shape=[2, 2]
    ),
    "conv and average pool": lambda net, x: net.node(
        "AveragePool", _weights(net, x, 8, 8, 1, 1, stays_float=True), kernel_shape=[2, 2]
    ),
    "depthwise": lambda net, x: _weights(net, x, 8, 1, 3, 3, group=8),
    "conv transpose": lambda net, x: _weights(net, x, 8, 4, 2, 2, axis=1, op="ConvTranspose", strides=[2, 2]),
    "gemm": lambda net, x: _weights(net, net.node("Flatten", x), 6, 288, op="Gemm", transB=1),
    "matmul constant": lambda net, x: _weights(net, x, 6, 5, axis=1, op="MatMul"),
    "add constant": lambda net, x: net.node("Add", x, net.weights(8, 1, 1, axis=None, zero_point=3)),
    "max pool": lambda net, x: net.node("MaxPool", x, kernel_shape=[2, 2]),
    "average pool": lambda net, x: net.node("AveragePool", x, kernel_shape=[2, 2]),
    "average pool of floats": lambda net, x: net.node(
        "AveragePool", net.node("Mul", x, _sine(net), stays_float=True), kernel_shape=[2, 2]
    ),
    "global pool": lambda net, x: net.node("GlobalAveragePool", x),
    "reduce mean": lambda net, x: net.node("ReduceMean", x, _integers(net, 2, 3), keepdims=0),
    "reduce max": lambda net, x: net.node("ReduceMax", x, _integers(net, 2, 3)),
    "reshape": lambda net, x: net.node("Reshape", x, _integers(net, 1, 4, -1)),
    "transpose": lambda net, x: net.node("Transpose", x, perm=[0, 2, 3, 1]),
    "slice": lambda net, x: net.node("Slice", x, *(_integers(net, each) for each in (1, 4, 2))),
    "split": lambda net, x: net.node("Split", x, axis=1, outputs=2, num_outputs=2),
    "pad": lambda net, x: net.node("Pad", x, _integers(net, 0, 0, 1, 1, 0, 0, 2, 1)),
    "pad with a number": lambda net, x: net.node(
        "Pad", x, _integers(net, 0, 0, 1, 1, 0, 0, 2, 1), net.constant(np.float32(0.777))
    ),
    "gather": lambda net, x: net.node("Gather", x, _integers(net, 3, 0, 3), axis=1),
    "depth to space": lambda net, x: net.node("DepthToSpace", x, blocksize=2),
    "relu": lambda net, x: net.node("Relu", x),
    "relu6": lambda net, x: net.node("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6))),
    "clip": lambda net, x: net.node(
        "Clip", x, net.constant(np.float32(-0.37)), net.constant(np.float32(1.3))
    ),
    "max constant": lambda net, x: net.node("Max", x, net.constant(np.float32(0.1234))),
    "max with a float": lambda net, x: net.node("Max", x, _sine(net)),
    "concat with a float": lambda net, x: net.node("Concat", x, _sine(net), axis=1),
    "leaky relu": lambda net, x: net.node("LeakyRelu", x, alpha=0.1),
    "sigmoid": lambda net, x: net.node("Sigmoid", x),
    "tanh": lambda net, x: net.node("Tanh", x),
    "softmax": lambda net, x: net.node("Softmax", x),
    "hard swish": lambda net, x: net.node("HardSwish", x),
    "silu": lambda net, x: net.node("Mul", x, net.node("Sigmoid", x, stays_float=True)),
    "resize nearest": lambda net, x: _resize(
        net,
        x,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "resize linear": lambda net, x: _resize(net, x, mode="linear"),
}
# Two operands; the shape of the second.
TWO: Mapping[str, tuple[tuple[int, ...], Mapping[str, Any]]] = {
    "Add": ((1, 8, 6, 6), {}),
    "Sub": ((8, 1, 1), {}),
    "Mul": ((1, 8, 6, 6), {}),
    "Div": ((1, 8, 6, 6), {}),
    "Max": ((1, 8, 6, 6), {}),
    "MatMul": ((1, 8, 6, 5), {}),
    "Concat": ((1, 8, 6, 6), {"axis": 1}),
}
# Both directions, of every narrow kind with the symmetric wide one, and of the other wide one.
_TRANSITIONS = (("u8", "s16"), ("s16", "u8"), ("s8", "s16"), ("s16", "s8"), ("u8", "u16"), ("u16", "u8"))
_ALWAYS = _TRANSITIONS[:2]


def _mark_cases(*cases: tuple[str, ...], always: tuple[tuple[str, ...], ...]) -> list[Any]:
    return [pytest.param(*case, marks=[] if case in always else pytest.mark.exhaustive) for case in cases]


def _network(given: str) -> tuple[Network, str]:
    net = Network(np.random.default_rng(5), given)
    return net, net.input(1, 8, 6, 6)


@pytest.mark.parametrize(("given", "result"), _mark_cases(*_TRANSITIONS, always=_ALWAYS))
@pytest.mark.parametrize("family", ONE)
def test_an_operator_between_two_widths_is_right_to_the_step_of_its_result(
    conformance: Conformance, tmp_path: Path, family: str, given: str, result: str
) -> None:
    net, x = _network(given)
    net.kinds[ONE[family](net, x)] = result
    _assert_right(conformance, tmp_path / "model.tflite", net, steps=1)


@pytest.mark.parametrize(("first", "second"), _mark_cases(*_TRANSITIONS, always=_ALWAYS))
@pytest.mark.parametrize("wide_result", [True, False])
@pytest.mark.parametrize("op", TWO)
def test_operands_of_two_widths_give_a_right_result_of_either(
    conformance: Conformance, tmp_path: Path, op: str, wide_result: bool, first: str, second: str
) -> None:
    net, x = _network(first)
    shape, attributes = TWO[op]
    other = net.input(*shape, positive=op == "Div")
    net.kinds[other] = second
    net.kinds[net.node(op, x, other, **attributes)] = first if (first in WIDE) == wide_result else second
    _assert_right(conformance, tmp_path / "model.tflite", net, steps=1)


# The widths of an input, of the first convolution's result, of the operator's, and of the last one's.
_CHAINS = (
    ("u8", "u8", "s16", "u8"),
    ("u8", "s16", "s16", "u8"),
    ("s16", "s16", "u8", "u8"),
    ("s16", "u8", "u8", "s16"),
    ("s8", "s8", "s16", "s8"),
    ("u8", "u16", "u8", "u8"),
)


@pytest.mark.parametrize(
    "chain", [_CHAINS[1], *(pytest.param(c, marks=pytest.mark.exhaustive) for c in _CHAINS)]
)
@pytest.mark.parametrize(
    "family",
    ["depthwise", "add constant", "relu6", "max pool", "average pool", "global pool", "resize linear"],
)
def test_what_lies_around_keeps_its_own_width(
    conformance: Conformance, tmp_path: Path, family: str, chain: tuple[str, ...]
) -> None:
    net, x = _network(chain[0])
    before = _weights(net, x, 8, 8, 3, 3, pads=[1] * 4)
    between = ONE[family](net, before)
    last = _weights(net, between, 4, 8, 1, 1)
    net.kinds = dict(zip((before, between, last), chain[1:], strict=True))
    # A rounding that falls otherwise in an integer kernel reaches the sum over eight channels behind it.
    _assert_right(conformance, tmp_path / "model.tflite", net, steps=6, of_all=True)


def _assert_right(
    conformance: Conformance, artefact: Path, net: Network, *, steps: int, of_all: bool = False
) -> None:
    """Holds the artefact to ONNX Runtime within steps of the result's grid, or of the coarsest in the network."""
    model, largest = net.quantized()
    conformance.convert(model, artefact)
    feeds: list[dict[str, Array]] = [net.feeds, {name: array * 3 for name, array in net.feeds.items()}]
    own = max(net.steps[value.removesuffix(".dq")] for value in (each.name for each in model.outputs))
    for delegate in ("xnnpack", "none"):
        with TfliteRuntime(artefact, RuntimeOptions(delegate=delegate)) as runtime:
            for feed in feeds:
                given, wanted = runtime.run(feed), run_onnx(model, feed)
                for one, other in zip(given.values(), wanted.values(), strict=True):
                    assert np.abs(one - other).max() <= steps * (largest if of_all else own) * 1.01


@pytest.mark.parametrize("op", ["AveragePool", "Resize"])
def test_means_on_the_grid_of_what_they_are_of_have_an_integer_kernel(
    conformance: Conformance, tmp_path: Path, op: str
) -> None:
    net, x = _network("s8")
    made = (
        net.node("AveragePool", x, kernel_shape=[2, 2])
        if op == "AveragePool"
        else _resize(net, x, mode="linear")
    )
    net.on_operands_grid.add(made)
    model, _ = net.quantized()
    operators = conformance.convert(model, tmp_path / "model.tflite")
    assert (operators["QUANTIZE"], operators["DEQUANTIZE"]) == (1, 1), operators
    assert not operators.keys() & {"ADD", "LEAKY_RELU"}, operators


def test_uint16_around_its_middle_computes_as_int16(conformance: Conformance, tmp_path: Path) -> None:
    net, x = _network("s16")
    ONE["conv with a bias"](net, x)
    signed, _ = net.quantized()
    proto = onnx.load_from_string(signed.to_bytes() or b"")
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT16:
            tensor.CopyFrom(numpy_helper.from_array(np.array(2**15, np.uint16), tensor.name))
    del proto.graph.value_info[:]
    unsigned = Model(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    operators, answers = [], []
    for number, model in enumerate((signed, unsigned)):
        operators.append(conformance.convert(model, tmp_path / f"{number}.tflite"))
        with TfliteRuntime(tmp_path / f"{number}.tflite") as runtime:
            answers.append(runtime.run(net.feeds))
    assert operators[1] == operators[0]
    for name, expected in run_onnx(unsigned, net.feeds).items():
        np.testing.assert_array_equal(answers[1][name], answers[0][name])
        assert np.abs(answers[1][name] - expected).max() <= max(net.steps.values()) * 1.01


def test_a_bias_that_products_of_both_widths_share_stays_as_wide_as_each_needs(tmp_path: Path) -> None:
    """Convolutions without a bias share one of zeros; the 16-bit kernel wants it in 64 bits, the other in 32."""
    net, x = _network("u8")
    wide = net.input(1, 8, 6, 6)
    first, second = (_weights(net, each, 8, 8, 3, 3) for each in (x, wide))
    net.kinds = {wide: "s16", second: "s16"}
    net.node("Add", first, second)
    model, _ = net.quantized()
    _convert(model, tmp_path)
    with TfliteRuntime(tmp_path / "model.tflite") as runtime:
        given, wanted = runtime.run(net.feeds), run_onnx(model, net.feeds)
    for one, other in zip(given.values(), wanted.values(), strict=True):
        assert np.abs(one - other).max() <= max(net.steps.values()) * 2


def test_the_report_proves_it_and_says_what_stays_in_floats_and_why(tmp_path: Path) -> None:
    net, x = _network("u8")
    first = _weights(net, x, 8, 8, 3, 3)
    net.kinds[_weights(net, first, 8, 1, 3, 3, group=8)] = "s16"
    model, _ = net.quantized()
    result = _convert(model, tmp_path)
    assert result.report.verdict == "proven"
    # Held to the model itself, within what a step of 8 bits makes.
    assert [each.question for each in result.report.judgements] == ["fidelity"]
    assert precision(tmp_path / "model.tflite") == "int8"
    notes = result.run.artifacts[0].notes
    assert "1 of 2 convolutions and matrix products compute in int8" in notes
    assert any(
        "stays in float32: it has int16 and int8 around it, and TFLite's kernels take integers of one width"
        in note
        for note in notes
    )


def _convert(model: Any, folder: Path) -> Any:
    model.save(folder / "model.onnx")
    return onnxport.convert_model(folder / "model.onnx", "tflite", folder / "model.tflite")
