"""Small graphs that are simplified, and the checks of what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxport.formats.model import Model
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.passes import Rewritten
from onnxport.optimizers.simplification import simplify

# The header of a graph in ONNX's text form.
_HEADER = '<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'


def model_of(text: str, opset: int = 17) -> Model:
    proto = onnx.parser.parse_model(_HEADER.format(opset=opset) + text)
    # Parsed weights are all there is: numbers from the parser are too few to write larger ones.
    return Model(ir.from_proto(proto))


def simple(model: Model, folder: Path, **params: object) -> Rewritten:
    return simplify(model, OptimizeParams.model_validate(params), folder, equivalence=None)


def grown_by_folding(weight: np.ndarray, shifts: list[ir.TensorProtocol]) -> Model:
    """Return a model that adds each of `shifts` to one weight, for a convolution each: folding copies it."""
    graph = onnx.helper.make_graph(
        [
            node
            for number in range(len(shifts))
            for node in (
                onnx.helper.make_node("Add", ["w", f"s{number}"], [f"w{number}"]),
                onnx.helper.make_node("Conv", ["x", f"w{number}"], [f"y{number}"]),
            )
        ],
        "grown",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 64, 5])],
        [
            onnx.helper.make_tensor_value_info(f"y{each}", onnx.TensorProto.FLOAT, ["N", 64, 3])
            for each in range(len(shifts))
        ],
        [onnx.numpy_helper.from_array(weight, "w")]
        + [onnx.numpy_helper.from_array(each.numpy(), f"s{number}") for number, each in enumerate(shifts)],
    )
    proto = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    return Model(ir.from_proto(proto))


def ops(model: Model) -> dict[str, int]:
    return dict(Counter(node.op_type for node in model.graph.all_nodes()))


def answers(model: Model, seed: int = 3, open_size: int = 3) -> list[np.ndarray]:
    """Return ONNX Runtime's answers on random numbers, without its own optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model.to_bytes()
    assert data is not None
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    feeds = {}
    for put in session.get_inputs():
        shape = [size if isinstance(size, int) else open_size for size in put.shape]
        kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}[put.type]
        feeds[put.name] = (rng.normal(size=shape) * 4).astype(kind)
    return list(session.run(None, feeds))


def check(
    text: str, expected: Mapping[str, int], folder: Path, opset: int = 17, **params: object
) -> Rewritten:
    """Check that a graph becomes `expected`, a count per operator, and computes the same."""
    model = model_of(text, opset)
    made = simple(model, folder, **params)
    assert ops(made.model) == expected
    assert [(each.name, each.dtype, each.shape) for each in (*made.model.inputs, *made.model.outputs)] == [
        (each.name, each.dtype, each.shape) for each in (*model.inputs, *model.outputs)
    ]
    for size in (1, 3):
        for before, after in zip(
            answers(model, open_size=size), answers(made.model, open_size=size), strict=True
        ):
            np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5)
    return made
