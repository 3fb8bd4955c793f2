"""Write a Forest as an ONNX graph: the trees, and the answers from their sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxport.core.arrays import Array
from onnxport.exporters.classical.boosters.forest import (
    Answers,
    Branch,
    Derived,
    Forest,
    Leaf,
    Link,
    Member,
    Missing,
    round_threshold,
)
from onnxport.exporters.classical.tabular import ROWS

_OPSET = 18
_ML_OPSET = 3
INPUT = "input"


@dataclass
class _Graph:
    """Nodes and constants under construction, with values by name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, kind: str, *inputs: str | Array | np.generic, output: str = "", **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self._constant(np.asarray(each)) for each in inputs]
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind.startswith("TreeEnsemble") else ""
        self.nodes.append(helper.make_node(kind, names, [output], name=output, domain=domain, **attributes))
        return output

    def _constant(self, array: Array) -> str:
        if array.dtype.kind in "US":
            array = array.astype(object)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def build_model(
    forest: Forest, answers: Answers, dtype: str, opset: int | None, name: str = INPUT
) -> onnx.ModelProto:
    """Return the ONNX model: input `name` [batch, width] of `dtype`, a label for classes, and the scores."""
    graph = _Graph()
    sums = _sums(graph, forest, name, np.dtype(dtype))
    outputs = _answers(graph, sums, forest.targets, answers)
    given = helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [ROWS, forest.width]
    )
    made = helper.make_graph(graph.nodes, "trees", [given], outputs, graph.constants)
    imports = [helper.make_opsetid("", opset or _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return helper.make_model(
        made,
        opset_imports=imports,
        ir_version=helper.find_min_ir_version_for(imports),
        producer_name="onnxport",
    )


def _sums(graph: _Graph, forest: Forest, table: str, dtype: np.dtype[Any]) -> str:
    """[batch, targets]"""
    asked = table
    if forest.derived:
        parts = [_derive(graph, table, each, dtype) for each in forest.derived]
        asked = graph.op("Concat", table, *parts, axis=1)
    if not forest.linear:
        return graph.op("TreeEnsembleRegressor", asked, **_attributes(forest, dtype))
    # A row's factors, summed over the trees, are those of one linear function; where a column is missing they are 0.
    attributes = _attributes(forest, dtype) | {"n_targets": forest.targets * (1 + forest.width)}
    factors = graph.op("TreeEnsembleRegressor", asked, **attributes)
    grid = graph.op("Reshape", factors, np.array([0, 1 + forest.width, forest.targets]))
    table = graph.op("Cast", table, to=TensorProto.FLOAT) if dtype == np.float64 else table
    known = graph.op("Where", graph.op("IsNaN", table), np.float32(0), table)
    values = graph.op("Pad", known, np.array([0, 1, 0, 0]), np.float32(1))
    row = graph.op("Reshape", values, np.array([0, 1, 1 + forest.width]))
    return graph.op("Reshape", graph.op("MatMul", row, grid), np.array([0, forest.targets]))


def _derive(graph: _Graph, table: str, derived: Derived, dtype: np.dtype[Any]) -> str:
    """[batch, 1]"""
    column = graph.op("Gather", table, np.array([derived.column]), axis=1)
    nan = np.array(np.nan, dtype)
    if isinstance(derived, Missing):
        distance = graph.op("Abs", graph.op("Sub", column, np.array(derived.value, dtype)))
        near = graph.op("Not", graph.op("Greater", distance, np.array(derived.reach, dtype)))
        return graph.op("Where", near, nan, column)
    return _membership(graph, column, derived, dtype, nan)


def _membership(graph: _Graph, column: str, member: Member, dtype: np.dtype[Any], nan: Array) -> str:
    size = max(member.codes) + 1
    below = np.array(-1 if member.cuts_negative else 0, dtype)
    low = (
        graph.op("Less", below, column)
        if member.cuts_negative
        else graph.op("Not", graph.op("Less", column, below))
    )
    inside = graph.op("And", low, graph.op("Less", column, np.array(size, dtype)))
    index = graph.op("Cast", graph.op("Where", inside, column, np.array(size, dtype)), to=TensorProto.INT64)
    held = np.array([code in member.codes for code in range(size + 1)], dtype)
    return graph.op("Where", graph.op("IsNaN", column), nan, graph.op("Gather", held, index, axis=0))


def _attributes(forest: Forest, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the attributes of a TreeEnsembleRegressor with float32 thresholds that decide as the library's."""
    names = "treeids nodeids featureids modes truenodeids falsenodeids missing_value_tracks_true".split()
    nodes: dict[str, list[Any]] = {name: [] for name in names}
    leaves: dict[str, list[int]] = {name: [] for name in ("treeids", "nodeids", "ids")}
    values: list[float] = []
    weights: list[float] = []
    for number, tree in enumerate(forest.trees):
        for place, node in enumerate(tree):
            branch = node if isinstance(node, Branch) else Branch(0, "BRANCH_LEQ", 0.0, 0, 0, False)
            mode = "LEAF" if isinstance(node, Leaf) else branch.mode
            row = (number, place, branch.column, mode, branch.yes, branch.no, int(branch.missing))
            for name, value in zip(names, row, strict=True):
                nodes[name].append(value)
            wide = dtype == np.float64
            values.append(branch.threshold if wide else round_threshold(branch.threshold, branch.mode))
            for target, weight in node.weights.items() if isinstance(node, Leaf) else ():
                for name, value in zip(leaves, (number, place, target), strict=True):
                    leaves[name].append(value)
                weights.append(float(weight))
    attributes: dict[str, Any] = {f"nodes_{name}": given for name, given in nodes.items()}
    attributes |= {f"target_{name}": given for name, given in leaves.items()}
    numbers: dict[str, Any] = {
        "nodes_values": values,
        "target_weights": weights,
        "base_values": [float(each) for each in forest.base],
    }
    if forest.linear:
        numbers["base_values"] += [0.0] * (forest.targets * forest.width)
    if dtype == np.float64:
        numbers = {
            f"{name}_as_tensor": numpy_helper.from_array(np.array(given, dtype), name)
            for name, given in numbers.items()
        }
    return attributes | numbers | {"n_targets": forest.targets, "aggregate_function": "SUM"}


def _answers(graph: _Graph, sums: str, targets: int, answers: Answers) -> list[onnx.ValueInfoProto]:
    if answers.scale != 1.0:
        sums = graph.op("Mul", sums, np.float32(answers.scale))
    scores = _add_link(graph, sums, answers.link)
    outputs = []
    if answers.several:
        above = graph.op("Greater", scores, np.float32(0.5))
        graph.op("Cast", above, output=answers.label, to=TensorProto.INT64)
        outputs.append(helper.make_tensor_value_info(answers.label, TensorProto.INT64, [ROWS, targets]))
    elif answers.classes:
        outputs.append(_label(graph, scores, answers))
    width = targets
    if answers.both:
        scores = graph.op("Concat", graph.op("Sub", np.float32(1), scores), scores, axis=1)
        width = 2
    if answers.link == "class":
        width = 1
    graph.op("Identity", scores, output=answers.scores)
    outputs.append(helper.make_tensor_value_info(answers.scores, TensorProto.FLOAT, [ROWS, width]))
    return outputs


def _label(graph: _Graph, scores: str, answers: Answers) -> onnx.ValueInfoProto:
    """Return the class of the largest score, the first of equals; of two classes the second above one half."""
    if answers.both:
        above = graph.op("Greater", scores, np.float32(0.5))
        index = graph.op("Reshape", graph.op("Cast", above, to=TensorProto.INT64), np.array([-1]))
    else:
        index = graph.op("ArgMax", scores, axis=1, keepdims=0)
    classes = np.asarray(answers.classes)
    kind = {"i": np.int64, "u": np.int64, "b": np.int64, "f": np.float32}.get(classes.dtype.kind)
    labels = classes.astype(str) if kind is None else classes.astype(kind)
    graph.op("Gather", labels, index, output=answers.label, axis=0)
    held = TensorProto.STRING if kind is None else helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return helper.make_tensor_value_info(answers.label, held, [ROWS])


def _add_link(graph: _Graph, sums: str, link: Link) -> str:
    if link == "identity":
        return sums
    if link == "softmax":
        return graph.op("Softmax", sums, axis=1)
    if link == "step":
        return graph.op("Cast", graph.op("Greater", sums, np.float32(0)), to=TensorProto.FLOAT)
    if link == "signed square":
        return graph.op("Mul", sums, graph.op("Abs", sums))
    if link == "class":
        return graph.op("Cast", graph.op("ArgMax", sums, axis=1, keepdims=1), to=TensorProto.FLOAT)
    return graph.op({"sigmoid": "Sigmoid", "exp": "Exp", "softplus": "Softplus"}[link], sums)
