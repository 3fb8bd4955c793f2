"""Repair float64 types in skl2onnx's files that ONNX Runtime refuses.

Several operators of ai.onnx.ml return float32 or have no float64 kernel. Casts are put where types meet, and Imputer
becomes operators that have a kernel. Trees compare numbers rounded to float32; histogram gradient boosting compares
float64, so its thresholds are restored, which skl2onnx writes in float32. Leaves add up in float32 in ONNX.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxport.core.arrays import Array

_FLOAT, _DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
# Of ai.onnx.ml: operator to the place of its output that is float32 whatever its input is.
_GIVES_FLOAT = {
    **dict.fromkeys(("TreeEnsembleClassifier", "LinearClassifier", "SVMClassifier"), 1),
    **dict.fromkeys(("TreeEnsembleRegressor", "LinearRegressor", "SVMRegressor"), 0),
    **dict.fromkeys(("Normalizer", "Scaler", "OneHotEncoder", "FeatureVectorizer"), 0),
}
# Those without a kernel for float64.
_TAKES_FLOAT = frozenset({"SVMRegressor"})
# Operators of ONNX whose inputs, from the given place on, are of one type, which their output has.
_ALIKE = {
    **dict.fromkeys("Add Sub Mul Div Pow MatMul Gemm Concat Max Min Sum Mean".split(), 0),
    **dict.fromkeys("Equal Greater GreaterOrEqual Less LessOrEqual".split(), 0),
    **dict.fromkeys(("Where",), 1),
}
_COMPARES = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual".split())
# Operators whose output has the type of their first input.
_KEEPS = frozenset(
    "Abs ArrayFeatureExtractor Binarizer Clip Exp Flatten Gather Identity Log Neg Reciprocal ReduceMax ReduceMean "
    "ReduceMin ReduceSum ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSumExp Relu Reshape Sigmoid Sign Slice Softmax "
    "GatherElements LogSoftmax Split "
    "Sqrt Squeeze Tanh TopK Transpose Unsqueeze Expand Erf Floor Ceil Round CumSum".split()
)


def repair_types(model: onnx.ModelProto, imputed: Sequence[Array], thresholds: Sequence[Array]) -> None:
    """Change `model`, converted for float64 inputs, so that ONNX Runtime runs it.

    Args:
        imputed: the imputers' replacements per column, of which ONNX has float32.
        thresholds: float64 thresholds of all nodes of each histogram gradient boosting, of which ONNX has float32.
    """
    mending = _Repair(model.graph, imputed, thresholds)
    mending.run()
    for entry in model.opset_import:
        if entry.domain == "ai.onnx.ml" and mending.has_double_trees:
            entry.version = max(entry.version, 3)


class _Repair:
    def __init__(self, graph: onnx.GraphProto, imputed: Sequence[Array], thresholds: Sequence[Array]) -> None:
        self._graph, self._imputed, self._thresholds = graph, imputed, thresholds
        self.has_double_trees = False
        self._types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        self._types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        self._nodes: list[onnx.NodeProto] = []
        self._casts: dict[tuple[str, int], str] = {}
        self._count = 0

    def run(self) -> None:
        for node in list(self._graph.node):
            if node.op_type == "Imputer" and self._types.get(node.input[0]) == _DOUBLE:
                self._impute(node)
                continue
            self._add(node)
        for output in self._graph.output:
            declared, found = output.type.tensor_type.elem_type, self._types.get(output.name)
            if {declared, found} == {_FLOAT, _DOUBLE}:
                output.type.tensor_type.elem_type = found or declared
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        del self._graph.value_info[:]

    def _add(self, node: onnx.NodeProto) -> None:
        if node.op_type in _TAKES_FLOAT or (
            node.op_type.startswith("TreeEnsemble") and not self._in_float64(node)
        ):
            self._cast_inputs(node, range(len(node.input)), _FLOAT)
        start = _ALIKE.get(node.op_type)
        if start is not None and not node.domain:
            places = range(start, len(node.input))
            types = {self._types.get(node.input[place]) for place in places}
            if {_FLOAT, _DOUBLE} <= types:
                self._cast_inputs(node, places, _DOUBLE)
        self._nodes.append(node)
        self._learn(node)

    def _cast_inputs(self, node: onnx.NodeProto, places: Iterable[int], to: int) -> None:
        for place in places:
            name = node.input[place]
            if self._types.get(name) == (_FLOAT if to == _DOUBLE else _DOUBLE):
                node.input[place] = self._cast(name, to)

    def _cast(self, name: str, to: int) -> str:
        if (name, to) not in self._casts:
            self._casts[name, to] = self._fresh(name)
            self._nodes.append(helper.make_node("Cast", [name], [self._casts[name, to]], to=to))
            self._types[self._casts[name, to]] = to
        return self._casts[name, to]

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}_mended_{self._count}"

    def _learn(self, node: onnx.NodeProto) -> None:
        """Record the result types of a node as far as they are float32 or float64."""
        first = self._types.get(node.input[0]) if node.input else None
        if node.op_type in _GIVES_FLOAT:
            if (place := _GIVES_FLOAT[node.op_type]) < len(node.output):
                self._types[node.output[place]] = _FLOAT
        elif node.op_type == "Cast":
            self._types[node.output[0]] = next(each.i for each in node.attribute if each.name == "to")
        elif node.op_type == "Constant":
            value = next((each.t for each in node.attribute if each.name == "value"), None)
            self._types[node.output[0]] = value.data_type if value is not None else TensorProto.UNDEFINED
        elif node.op_type in _ALIKE and node.op_type not in _COMPARES:
            found = self._types.get(node.input[_ALIKE[node.op_type]])
            self._types |= {name: found for name in node.output if found is not None}
        elif node.op_type in _KEEPS and first is not None:
            self._types[node.output[0]] = first

    def _in_float64(self, node: onnx.NodeProto) -> bool:
        """Restore float64 thresholds of trees that compare float64; return whether these are such."""
        written = next(
            np.array(each.floats, np.float32) for each in node.attribute if each.name == "nodes_values"
        )
        exact = (each for each in self._thresholds if np.array_equal(each.astype(np.float32), written))
        found = next(exact, None)
        if found is None:
            return False
        for each in node.attribute:
            if each.type != onnx.AttributeProto.FLOATS:
                continue
            values = found if each.name == "nodes_values" else np.array(each.floats, np.float64)
            each.CopyFrom(
                helper.make_attribute(f"{each.name}_as_tensor", numpy_helper.from_array(values, each.name))
            )
        self.has_double_trees = True
        return True

    def _impute(self, node: onnx.NodeProto) -> None:
        """Rewrite Imputer, which has only a float32 kernel, as Where(x is the replaced value, replacement, x)."""
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        rounded = np.asarray(attributes["imputed_value_floats"], np.float32)
        exact = (each for each in self._imputed if np.array_equal(each.astype(np.float32), rounded))
        fill = next(exact, rounded).astype(np.float64)
        replaced = float(attributes.get("replaced_value_float", np.nan))
        found, values = self._fresh("missing"), self._constant(fill[None, :])
        if np.isnan(replaced):
            self._nodes.append(helper.make_node("IsNaN", [node.input[0]], [found]))
        else:
            self._nodes.append(
                helper.make_node("Equal", [node.input[0], self._constant(np.array(replaced))], [found])
            )
        self._nodes.append(helper.make_node("Where", [found, values, node.input[0]], list(node.output)))
        self._types[node.output[0]] = _DOUBLE

    def _constant(self, values: Array) -> str:
        name = self._fresh("constant")
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.float64), name))
        self._types[name] = _DOUBLE
        return name
