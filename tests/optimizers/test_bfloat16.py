"""Weights in bfloat16: rounded to the nearest, widened before they are read."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers.bfloat16 import to_bfloat16


def product(w: np.ndarray, opset: int = 17) -> Model:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", w.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", w.shape[1]])],
        [numpy_helper.from_array(w, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return Model(ir.from_proto(made), Path("model.onnx"))


def answer(model: Model, x: np.ndarray) -> np.ndarray:
    data = model.to_bytes()
    assert data is not None
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("opset", [7, 17])
def test_products_are_of_the_rounded_weights(opset: int) -> None:
    random = np.random.default_rng(0)
    w, x = (random.standard_normal(shape).astype(np.float32) for shape in ((32, 16), (3, 32)))
    made = to_bfloat16(product(w, opset))
    np.testing.assert_allclose(
        answer(made.model, x), x @ w.astype(ml_dtypes.bfloat16).astype(np.float32), rtol=1e-5, atol=1e-5
    )
    assert made.facts["weights"] == {"before": w.nbytes, "after": w.nbytes // 2}
    assert made.model.opset == max(opset, 13)
    assert len(made.notes) == (1 if opset == 17 else 2)


def test_the_largest_float32_does_not_become_infinite() -> None:
    w = np.full((32, 16), np.finfo(np.float32).max)
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 0.5
    assert np.isfinite(answer(to_bfloat16(product(w)).model, x)).all()


def test_settings_stay_float32_and_a_model_of_nothing_else_is_refused() -> None:
    model = Model(ir.from_proto(graphs.mlp()), Path("model.onnx"))
    with pytest.raises(CannotConvertError, match="no float32 weights to convert to bfloat16"):
        to_bfloat16(model)
