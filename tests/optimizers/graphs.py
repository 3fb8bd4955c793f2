"""Graphs in ONNX's text form, a row each, and ONNX Runtime's answers for them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
import onnxruntime
import pytest

from tests import exact

# Inputs that must not be random, and the sizes of symbolic dimensions.
FED: dict[str, Any] = {
    "grow": [1, 1, 2, 3],
    "mixed": [1, 1, 0.6, 1.7],
    "shape": [2, 4, -1],
    "v": [0.5, 2, 3],
    "split": [1, 5],
}
SIZES = {"N": 2, "C": 6, "H": 4, "W": 5, "R": 3}


def graphs(*tables: str) -> list[Any]:
    """Return the rows of the tables, named by opset and operators."""
    rows = re.findall(r"^ ?(\d+) (.+(?:\n {5}.+)*)", "\n".join(tables), flags=re.MULTILINE)
    return [pytest.param(int(opset), text, id=f"{opset}-{'-'.join(operators(text))}") for opset, text in rows]


def operators(text: str) -> list[str]:
    return re.findall(r"= ([A-Z]\w+)[<(]", text)


def build(opset: int, text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> graph {text}')
    for node in model.graph.node:
        node.input[:] = ["" if name == "_" else name for name in node.input]
    return model


def feeds(model: onnx.ModelProto) -> dict[str, Any]:
    random = np.random.default_rng(0)
    fed = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [SIZES[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        numbers = random.standard_normal(shape)
        known = value.name in FED and np.size(FED[value.name]) == numbers.size
        fed[value.name] = np.asarray(FED[value.name] if known else numbers).astype(dtype)
    return fed


def run(model: onnx.ModelProto, fed: dict[str, Any]) -> list[Any]:
    """Return ONNX Runtime's answers, graph optimizations off: they might hide errors of the lift."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(exact.saved(model), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
    return list(session.run(None, {name: value for name, value in fed.items() if name in names}))


def check(model: onnx.ModelProto) -> None:
    """Run ONNX's full check, which needs a declared or inferred shape for every output."""
    model = onnx.shape_inference.infer_shapes(model)
    for value in model.graph.output:
        value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(model, full_check=True)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is None:
        assert found is None
    else:
        found, expected = np.asarray(found), np.asarray(expected)
        assert found.dtype == expected.dtype
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, expected)


def inside_if(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph twice, as the branches of an If that read its inputs from outside."""
    graph = model.graph
    branches = {branch: _branch(graph, branch) for branch in ("then", "else")}
    node = onnx.helper.make_node("If", ["flag"], [value.name for value in graph.output])
    for branch, inner in branches.items():
        node.attribute.append(onnx.helper.make_attribute(f"{branch}_branch", inner))
    flag = onnx.helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    outer = onnx.helper.make_graph([node], "outer", [*graph.input, flag], graph.output)
    return onnx.helper.make_model(outer, opset_imports=model.opset_import, ir_version=model.ir_version)


def _branch(graph: onnx.GraphProto, prefix: str) -> onnx.GraphProto:
    branch = onnx.GraphProto()
    branch.CopyFrom(graph)
    branch.name = prefix
    del branch.input[:], branch.value_info[:]
    made = [tensor.name for tensor in graph.initializer] + [
        name for node in graph.node for name in node.output
    ]
    new = {name: f"{prefix}_{name}" for name in made}
    for tensor in branch.initializer:
        tensor.name = new[tensor.name]
    for value in branch.output:
        value.name = new[value.name]
    for node in branch.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new[name] for name in node.output]
    return branch
