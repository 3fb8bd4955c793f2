"""ONNX's inference finds the same through ours as through onnx-ir's pass, and leaves the model as it was."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.passes import common

from onnxport.formats import onnx_inference


def tensor(name: str, dims: list[int | str] | None, type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, dims)


def branch(name: str) -> onnx.GraphProto:
    """Both branches use one name inside, and read a weight of the outer graph."""
    nodes = [helper.make_node("MatMul", ["a", "w"], ["t"]), helper.make_node("Relu", ["t"], [name])]
    return helper.make_graph(nodes, name, [], [tensor(name, None)])


def branches() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((8, 40), np.float32), "w")
    sizes = numpy_helper.from_array(np.array([0, -1, 8]), "sizes")
    nodes = [
        helper.make_node("Reshape", ["x", "sizes"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("yes"), else_branch=branch("no")),
        helper.make_node("Shape", ["y"], ["s"]),
    ]
    ends = [tensor("x", ["N", 2, 16]), tensor("c", [], TensorProto.BOOL)]
    outputs = [tensor("y", None), tensor("s", None, TensorProto.INT64)]
    graph = helper.make_graph(nodes, "g", ends, outputs, [sizes, weight])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Mul", ["x", "x"], ["square"]),
            helper.make_node("Add", ["v", "square"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
        ],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("go", [], TensorProto.BOOL), tensor("v", None)],
        [tensor("on", [], TensorProto.BOOL), tensor("next", None), tensor("total", None)],
    )
    steps = numpy_helper.from_array(np.array(3), "steps")
    nodes = [helper.make_node("Loop", ["steps", "", "x"], ["y", "totals"], body=body)]
    graph = helper.make_graph(
        nodes, "g", [tensor("x", [2, 4])], [tensor("y", None), tensor("totals", None)], [steps]
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def shapes(model: ir.Model) -> list[tuple[str | None, str, str]]:
    values = (value for graph in model.graphs() for node in graph for value in node.outputs)
    return [(value.name, str(value.shape), str(value.dtype)) for value in values]


@pytest.mark.parametrize("make", [branches, loop])
def test_values_get_the_shapes_that_onnx_irs_pass_gives_them(make) -> None:  # type: ignore[no-untyped-def]
    ours, theirs = ir.from_proto(make()), ir.from_proto(make())
    unknown = shapes(ours)
    assert onnx_inference.infer(ours)
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(theirs)
    assert shapes(ours) == shapes(theirs)
    assert shapes(ours) != unknown
    assert not onnx_inference.infer(ours), "nothing is left to learn"


def test_large_and_small_weights_are_where_they_were() -> None:
    model = ir.from_proto(branches())
    onnx_inference.infer(model)
    assert [value.name for value in model.graph.inputs] == ["x", "c"]
    weights = {name: value.const_value for name, value in model.graph.initializers.items()}
    assert {name: tensor is not None and tensor.shape.numpy() for name, tensor in weights.items()} == {
        "sizes": (3,),
        "w": (8, 40),
    }


def test_a_model_that_onnx_cannot_infer_stays_as_it_is() -> None:
    model = ir.from_proto(branches())
    model.opset_imports.clear()
    before = shapes(model)
    assert not onnx_inference.infer(model)
    assert shapes(model) == before
    assert set(model.graph.initializers) == {"sizes", "w"}
