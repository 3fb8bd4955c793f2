"""A node of another domain, its rewriting, and ONNX Runtime's answers to both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx import helper, numpy_helper

from onnxport.converters.lowering import qualified_op
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from onnxport.optimizers.node_marks import REASON
from onnxport.optimizers.rewrites.registry import rewritten_ops
from tests import exact

Array = np.ndarray[Any, np.dtype[Any]]
OPSETS = {"": 21, "ai.onnx.ml": 3, "com.microsoft": 1}


def model_of(
    node: onnx.NodeProto,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    outputs: Mapping[str, np.dtype[Any] | type],
    *,
    is_open: bool = True,
) -> Model:
    """Return one node as a model, the first axis of its inputs open."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(x.dtype),
            [f"{name}.0", *x.shape[1:]] if is_open and x.ndim else x.shape,
        )
        for name, x in feeds.items()
    ]
    results = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for name, dtype in outputs.items()
    ]
    graph = helper.make_graph(
        [node], "graph", inputs, results, [numpy_helper.from_array(x, name) for name, x in constants.items()]
    )
    versions = {node.domain: 1} | OPSETS
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return Model(onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10)))


def rewritten(model: Model) -> Model:
    """Prepare the model for a target with all of ONNX's own operators except those with a rewriting."""
    native = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain} - rewritten_ops()
    return prepare(model, shapes={}, native=lambda: native).model


def refusal(model: Model) -> str:
    """Return why a node of the model was not rewritten; empty if all were."""
    found = [
        f"{qualified_op(node)} {node.metadata_props.get(REASON, 'is left')}"
        for node in model.graph.all_nodes()
        if REASON in node.metadata_props or node.domain not in ("", "ai.onnx")
    ]
    return "; ".join(found)


def run(model: Model, feeds: Mapping[str, Array]) -> list[Array]:
    """Return ONNX Runtime's answers, without graph optimization."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        exact.saved(model.to_bytes() or b""), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(each) for each in session.run(None, dict(feeds))]


def differences(expected: Sequence[Array], actual: Sequence[Array], *, atol: float = 1e-5) -> str:
    """Return how two sets of answers differ; empty if within float32 noise."""
    for number, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {number} is {b.dtype}{b.shape}, expected {a.dtype}{a.shape}"
        if a.dtype.kind in "biuO":
            if not np.array_equal(a, b):
                return f"output {number} is {b.reshape(-1)[:8]}, expected {a.reshape(-1)[:8]}"
        elif not np.allclose(a, b, rtol=1e-4, atol=atol, equal_nan=True):
            return f"output {number} is {b.reshape(-1)[:8]}, expected {a.reshape(-1)[:8]}"
    return ""
