"""ONNX models made of a few nodes, and ONNX Runtime's answer to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx import helper

from onnxport.formats.model import Model
from tests import exact
from tests.conformance.tflite import Array

OPSET = 21


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    outputs: Sequence[str] = (),
    open_dims: Mapping[str, Sequence[str | int | None]] = {},
    opset: int = OPSET,
) -> Model:
    """A model of `nodes` whose inputs have the feeds' shapes, or those of `open_dims`.

    Its outputs are the last node's unless named.
    """
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), open_dims.get(name, array.shape)
        )
        for name, array in feeds.items()
    ]
    names = outputs or nodes[-1].output
    graph = helper.make_graph(
        nodes, "graph", inputs, [onnx.ValueInfoProto(name=name) for name in names], list(initializers)
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Model(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto)))


def run_onnx(model: Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The answers of ONNX Runtime without graph optimization."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        exact.saved(model.to_bytes() or b""), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, (np.asarray(value) for value in session.run(names, dict(feeds))), strict=True))
