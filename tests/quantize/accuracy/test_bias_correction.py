"""Bias correction makes the mean error of a product with a rounded weight nothing (Nagel et al. 2019, 4.2)."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxport.quantize.accuracy.bias_correction import correct_bias
from onnxport.quantize.grids import QuantizedWeight, weight_grid

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
    "gemm": ("Gemm", {}, (6, 6), (20, 6), 1),
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

    assert mean_error(bias) > 1e-2
    assert mean_error(correct_bias(bias, weight, rounded, means, axis)) < 1e-5
