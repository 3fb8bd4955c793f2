"""float16 packages that are proven: forests, branches whose values nothing measures, sources with integer weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

import onnxport

_OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]


def verdict(model: onnx.ModelProto | Path, folder: Path) -> str:
    path = folder / "model.onnx"
    if isinstance(model, Path):
        path = model
    else:
        onnx.save(model, path)
    made = onnxport.convert_model(
        path, to="coreml", precision="fp16", output=folder / "model.mlpackage", keep_rejected=True
    )
    return str(made.report.verdict)


def made(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: dict[str, list[int]]
) -> onnx.ModelProto:
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in each.items()]
        for each in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *ports)
    return helper.make_model(graph, opset_imports=_OPSETS, ir_version=8)


def test_a_tree_compares_in_float32(tmp_path: Path) -> None:
    """In float16 every feature of 0..1 falls on a threshold of one of these two nodes, or beside both."""
    tree = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0] * 5,
        nodes_nodeids=[0, 1, 2, 3, 4],
        nodes_featureids=[0, 0, 0, 0, 0],
        nodes_values=[0.50001, 0.25003, 0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 2, 0, 0, 0],
        nodes_falsenodeids=[4, 3, 0, 0, 0],
        target_treeids=[0, 0, 0],
        target_nodeids=[2, 3, 4],
        target_ids=[0, 0, 0],
        target_weights=[1.0001, -3.0, 2.0],
    )
    assert verdict(made([tree], {"x": [64, 2]}, {"y": [64, 1]}), tmp_path) == "proven"


def test_what_a_branch_multiplies_beyond_float16_stays_float32(tmp_path: Path) -> None:
    """log(1 + x * 2^20), as Silero's detector has it in both branches of an If."""

    def branch(name: str, factor: float) -> onnx.GraphProto:
        constants = {"large": np.float32(2**20), "one": np.float32(1), "factor": np.float32(factor)}
        nodes = [
            helper.make_node("Mul", ["size", f"{name}/large"], [f"{name}/grown"]),
            helper.make_node("Add", [f"{name}/grown", f"{name}/one"], [f"{name}/shifted"]),
            helper.make_node("Log", [f"{name}/shifted"], [f"{name}/log"]),
            helper.make_node("Mul", [f"{name}/log", f"{name}/factor"], [f"{name}/y"]),
        ]
        output = helper.make_tensor_value_info(f"{name}/y", TensorProto.FLOAT, [3, 8])
        weights = [numpy_helper.from_array(value, f"{name}/{each}") for each, value in constants.items()]
        return helper.make_graph(nodes, name, [], [output], weights)

    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.float32(0))),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("a", 1), else_branch=branch("b", 2)),
    ]
    assert verdict(made(nodes, {"x": [3, 8]}, {"y": [3, 8]}), tmp_path) == "proven"


def test_a_dynamically_quantized_source_is_compared_with_its_rounding(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {"w": (64, 128), "v": (128, 32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    model = made(nodes, {"x": [5, 64]}, {"y": [5, 32]})
    model.graph.initializer.extend(
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in weights.items()
    )
    onnx.save(model, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")
    assert verdict(tmp_path / "dynamic.onnx", tmp_path) == "proven"
