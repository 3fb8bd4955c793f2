"""From which nodes of the model the executed ones come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.graph.onnx import read_onnx
from tests.profiling.graphs import graph, told

CONVOLUTIONS = """
    conv1 Conv(x, w) -> a
    relu1 Relu(a) -> b1
    conv2 Conv(b1, w2) -> c
    add Add(c, b1) -> d
    pool MaxPool(d) -> y
"""


def test_a_fused_node_computes_what_lies_between_its_values() -> None:
    executed = graph("""
        fused FusedConv(x, w) -> b1
        conv2 FusedConv(b1, w2, b1) -> d
        pool MaxPool(d) -> y
    """)
    assert told(executed, graph(CONVOLUTIONS)) == {
        "fused": ["conv1", "relu1"],
        "conv2": ["conv2", "add"],
        "pool": ["pool"],
    }


def test_a_reordered_value_counts_for_the_node_that_wants_it_so() -> None:
    executed = graph("""
        ReorderInput ReorderInput(x) -> t0
        b1_nchwc Conv(t0, w) -> t1
        d_nchwc Conv(t1, w2, t1) -> t2
        y_nchwc MaxPool(t2) -> t3
        ReorderOutput ReorderOutput(t3) -> y
    """)
    assert told(executed, graph(CONVOLUTIONS)) == {
        "ReorderInput": ["conv1", "relu1"],
        "b1_nchwc": ["conv1", "relu1"],
        "d_nchwc": ["conv2", "add"],
        "y_nchwc": ["pool"],
        "ReorderOutput": ["pool"],
    }


def test_an_inserted_cast_counts_for_the_node_that_it_feeds() -> None:
    model = graph("a Sin(x) -> s\nb Erf(s) -> y")
    executed = graph("a Sin(x) -> s\nInsertedCast_s Cast(s) -> s_wide\nb Erf(s_wide) -> y")
    assert told(executed, model)["InsertedCast_s"] == ["b"]


def test_nodes_computed_at_load_time_are_no_sources() -> None:
    model = graph("""
        shape Shape(x) -> s
        half Mul(s, w) -> h
        reshape Reshape(x, h) -> r
        dq DequantizeLinear(b) -> q
        gemm MatMul(r, q) -> y
    """)
    executed = graph("reshape Reshape(x, h) -> r\ngemm MatMul(r, q) -> y", constants="h q")
    assert told(executed, model) == {"reshape": ["reshape"], "gemm": ["gemm"]}


def test_nodes_that_compute_a_renamed_weight_are_no_sources() -> None:
    model = graph("dq DequantizeLinear(b) -> q\ngemm MatMul(x, q) -> m\nrelu Relu(m) -> y")
    executed = graph("gemm FusedMatMul(x, packed) -> y", constants="packed")
    assert told(executed, model) == {"gemm": ["gemm", "relu"]}


def test_nodes_joined_by_unknown_values_are_split_by_operator() -> None:
    model = graph("c Conv(x, w) -> a\nt Tanh(a) -> b1\nm MatMul(b1, w2) -> y")
    executed = graph("one Conv(x, w) -> new\ntwo FusedMatMul(new, w2) -> y")
    assert told(executed, model) == {"one": ["c"], "two": ["m"]}


def test_unknown_nodes_of_one_region_share_what_it_computes() -> None:
    model = graph("s Softplus(x) -> a\nt Tanh(a) -> b1\nm Mul(x, b1) -> y")
    executed = graph("one Mish1(x) -> new\ntwo Mish2(new) -> y")
    assert told(executed, model) == {"one": ["s", "t", "m"], "two": ["s", "t", "m"]}


def test_an_unknown_node_has_no_source() -> None:
    assert told(graph("odd Strange(z) -> q"), graph("a Sin(x) -> y")) == {"odd": []}


def test_nodes_of_bodies_come_from_bodies() -> None:
    inner = graph("then Relu(x) -> o", inputs="", constants="")
    other = graph("else Identity(x) -> o2", inputs="", constants="")
    model = graph("c Not(x) -> cond\nif If(cond) -> y", bodies={"if": [other, inner]})
    same = graph("else Identity(x) -> o2", inputs="", constants="")
    again = graph("then Relu(x) -> o", inputs="", constants="")
    executed = graph("c Not(x) -> cond\nif If(cond) -> y", bodies={"if": [same, again]})
    assert told(executed, model) == {"c": ["c"], "if": ["if"], "else": ["else"], "then": ["then"]}


def test_a_body_in_place_of_its_if_keeps_its_nodes() -> None:
    inner = graph("then Relu(x) -> o\nsin Sin(o) -> p", inputs="", constants="")
    model = graph("if If(w) -> y\nend Erf(y) -> z", bodies={"if": [inner]})
    executed = graph("then Relu(x) -> o\nsin Sin(o) -> y\nend Erf(y) -> z")
    found = told(executed, model)
    assert found["then"] == ["then"]
    assert found["end"] == ["end"]


# What ONNX Runtime itself makes of graphs: a fusion each, with the operator that stands for it.
def _gelu() -> list[onnx.NodeProto]:
    return [
        helper.make_node("Div", ["x", "root2"], ["d"], name="div"),
        helper.make_node("Erf", ["d"], ["e"], name="erf"),
        helper.make_node("Add", ["e", "one"], ["p"], name="plus"),
        helper.make_node("Mul", ["x", "p"], ["m"], name="times"),
        helper.make_node("Mul", ["m", "half"], ["y"], name="halved"),
    ]


def _layer_norm() -> list[onnx.NodeProto]:
    return [
        helper.make_node("ReduceMean", ["x"], ["mean"], name="mean", axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["c"], name="centred"),
        helper.make_node("Pow", ["c", "two"], ["sq"], name="squared"),
        helper.make_node("ReduceMean", ["sq"], ["var"], name="variance", axes=[-1]),
        helper.make_node("Add", ["var", "eps"], ["v"], name="eps"),
        helper.make_node("Sqrt", ["v"], ["std"], name="deviation"),
        helper.make_node("Div", ["c", "std"], ["n"], name="normed"),
        helper.make_node("Mul", ["n", "gamma"], ["g"], name="scaled"),
        helper.make_node("Add", ["g", "beta"], ["y"], name="shifted"),
    ]


FUSIONS = {"Gelu": _gelu, "LayerNormalization": _layer_norm}


@pytest.mark.parametrize("op", FUSIONS)
def test_a_fusion_of_onnx_runtime_has_all_nodes_that_it_replaces(op: str, tmp_path: Path) -> None:
    nodes = FUSIONS[op]()
    numbers = {"root2": 2**0.5, "one": 1.0, "half": 0.5, "two": 2.0, "eps": 1e-5}
    weights = {name: np.float32(value) for name, value in numbers.items()}
    weights |= {"gamma": np.ones(8, np.float32), "beta": np.zeros(8, np.float32)}
    used = {name for node in nodes for name in node.input}
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items() if n in used]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    proto = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    model, optimized = tmp_path / "model.onnx", tmp_path / "optimized.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(proto, opset_imports=opsets, ir_version=8), model)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimized)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    executed = read_onnx(optimized)
    assert [node.op for node in executed.nodes] == [op]
    assert list(told(executed, read_onnx(model)).values()) == [[node.name for node in nodes]]
