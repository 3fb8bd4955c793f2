"""Bias correction makes the mean error of a product with a rounded weight nothing (Nagel et al. 2019, 4.2)."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.quantize.accuracy.bias_correction import correct_bias, find_taps_on_data
from onnxport.quantize.grids import QuantizedWeight, weight_grid
from onnxport.validate.translation.proof import prove
from tests.quantize import small

RNG = np.random.default_rng(3)


def run(op, attributes, data, weight, bias):
    """What ONNX Runtime makes of the product."""
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w", "b"], ["y"], **attributes)],
        "product",
        [helper.make_tensor_value_info("x", floats, data.shape)],
        [helper.make_tensor_value_info("y", floats, None)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": data})[0]


PRODUCTS = {
    "pointwise": ("Conv", {}, (7, 6, 1, 1), (5, 6, 4, 4), 0),
    "grouped": ("Conv", {"group": 3}, (9, 2, 1, 1), (5, 6, 4, 4), 0),
    "depthwise": ("Conv", {"group": 6}, (6, 1, 3, 3), (1, 6, 5, 5), 0),
    "dense": ("Conv", {}, (7, 6, 3, 3), (1, 6, 5, 5), 0),
    "one pixel": ("Conv", {"pads": [1, 1, 1, 1]}, (7, 6, 3, 3), (5, 6, 1, 1), 0),
    "far taps": ("Conv", {"pads": [4, 4, 4, 4], "dilations": [4, 4]}, (7, 6, 3, 3), (5, 6, 3, 3), 0),
    "gemm": ("Gemm", {}, (6, 6), (20, 6), 1),
    "more than are corrected together": ("Conv", {}, (50_000, 6, 1, 1), (2, 6, 1, 1), 0),
    "gemm of more": ("Gemm", {}, (6, 50_000), (20, 6), 1),
    "gemm transposed": ("Gemm", {"transB": 1}, (6, 6), (20, 6), 0),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("per_tensor", [False, True])
def test_the_mean_error_is_nothing(name, per_tensor):
    op, attributes, weight_shape, data_shape, axis = PRODUCTS[name]
    data = RNG.normal(size=data_shape).astype(np.float32) + RNG.normal(size=(1, 6, *data_shape[2:])).astype(
        "f"
    )
    if len(weight_shape) == 4 and weight_shape[-1] > 1:  # where every tap meets the same mean
        data[:] = data.mean(axis=(2, 3), keepdims=True)
    weight = RNG.normal(size=weight_shape).astype(np.float32)
    channels = weight_shape[axis] if op == "Gemm" else weight_shape[0]
    bias = RNG.normal(size=channels).astype(np.float32)
    grid = weight_grid(weight, None if per_tensor else axis)
    rounded = QuantizedWeight(np.int8(np.rint(grid.quantized(weight) / 16) * 16), grid)  # coarse on purpose
    means = np.moveaxis(data, 1, 0).reshape(6, -1).astype(np.float64).mean(axis=1)
    right = run(op, attributes, data, weight, bias)
    others = tuple(each for each in range(right.ndim) if each != 1)

    def mean_error(bias):
        return np.abs((run(op, attributes, data, rounded.floats, bias) - right).mean(axis=others)).max()

    values = [
        ir.Value(name="x", shape=ir.Shape(data_shape)),
        ir.Value(name="w", shape=ir.Shape(weight_shape)),
    ]
    taps = find_taps_on_data(ir.node(op, values, attributes))
    assert mean_error(bias) > 1e-2
    assert mean_error(correct_bias(bias, weight, rounded, means, axis, taps)) < 1e-5


# A filter that reaches beyond a small map: size of the map, attributes of the Conv, size of its result.
SMALL_MAPS = {
    "one pixel": (1, "pads = [1, 1, 1, 1]", 1),
    "one pixel, two steps": (1, "pads = [1, 1, 1, 1], strides = [2, 2]", 1),
    "far taps": (4, "pads = [6, 6, 6, 6], dilations = [6, 6]", 4),
    "an end in two steps": (3, "pads = [2, 2, 2, 2], dilations = [2, 2], strides = [2, 2]", 2),
    "padded far": (2, "pads = [3, 3, 0, 0]", 3),
    "every tap": (2, "pads = [1, 1, 1, 1]", 2),
    "open": ("N", "pads = [1, 1, 1, 1]", "M"),
}


@pytest.mark.parametrize("name", SMALL_MAPS)
@pytest.mark.parametrize("group", [1, 4])
def test_taps_that_meet_padding_alone_correct_nothing(name: str, group: int, tmp_path: Path) -> None:
    """The correction is that of what the file computes, and proven: only taps that meet data count."""
    size, attributes, result = SMALL_MAPS[name]
    text = f"""<ir_version: 8, opset_import: ["": 13]>
    g (float[2, 4, {size}, {size}] x) => (float[2, 4, {result}, {result}] y)
    {{ r = Relu (x) y = Conv <group = {group}, {attributes}> (r, w, b) }}"""
    numbers = {"w": RNG.normal(size=(4, 4 // group, 3, 3)).astype("f"), "b": np.ones(4, np.float32)}
    case = small.case(text, tmp_path, initializers=numbers, bias_correction=True)
    proof = prove(Model.load(case.source), case.quantized.model, case.feeds)
    assert not proof.findings
