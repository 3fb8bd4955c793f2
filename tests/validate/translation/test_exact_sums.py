"""The reference of 16-bit integer arithmetic is exact where float32 cannot hold the sums."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.exact_sums import with_exact_sums

DEPTH, CHANNELS, STEP = 500, 4, 1 / 1024


def _codes() -> tuple[np.ndarray, np.ndarray]:
    """Numbers whose products are large, and cancel out."""
    draw = np.random.default_rng(0)
    data = draw.integers(20000, 32768, (2, DEPTH, 3, 3))
    weight = draw.integers(100, 128, (CHANNELS, DEPTH, 1, 1))
    weight[:, DEPTH // 2 :] *= -1
    return data.astype(np.int16), weight.astype(np.int8)


def _model(op: str, steps: np.ndarray, bias: np.ndarray) -> Model:
    _, weight = _codes()
    stored = {"c": weight, "w.step": steps, "x.step": np.float32(STEP), "b": bias}
    order = [0, 1, 2, 3]
    if op == "MatMul":
        stored["c"] = np.ascontiguousarray(weight[..., 0, 0].T)
        order = [0, 2, 3, 1]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x.step"], ["x.d"]),
        helper.make_node("DequantizeLinear", ["c", "w.step"], ["w.d"], axis=1 if op == "MatMul" else 0),
        helper.make_node("Transpose", ["x.d"], ["x.t"], perm=order),
        helper.make_node(op, ["x.t", "w.d", *(["b"] if op == "Conv" else [])], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT16, (2, DEPTH, 3, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Model(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))


def _error(model: Model, data: np.ndarray, exact: np.ndarray) -> float:
    with OrtRuntime.of_model(model, RuntimeOptions(level="disable", integers="cpu")) as runtime:
        return float(np.abs(runtime.run({"x": data})["y"] - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("op", ["Conv", "MatMul"])
def test_sums_beyond_float32_are_exact(op: str) -> None:
    data, weight = _codes()
    steps = np.array([0.01, 0.02, 0.005, 0.03], np.float32)
    bias = np.array([1, -2, 3, 0.5], np.float32)
    sums = np.einsum("bdhw,cd->bchw", data.astype(np.int64), weight[..., 0, 0].astype(np.int64))
    scale = np.float64(np.float32(STEP)) * steps.astype(np.float64)
    exact = sums * scale.reshape(-1, 1, 1)
    exact = exact + bias.reshape(-1, 1, 1) if op == "Conv" else exact.transpose(0, 2, 3, 1)
    model = _model(op, steps, bias)
    assert _error(with_exact_sums(model), data, exact) < 2e-7
    assert _error(model, data, exact) > 1e-6
