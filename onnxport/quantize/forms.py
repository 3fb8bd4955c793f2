"""Operators written as others that have integer kernels, in the settled graph: the same function, in float too.

    x - c          x + (-c)
    x / c          x * (1 / c)
    HardSigmoid    Clip(x + beta / alpha, 0, 1 / alpha) * alpha
    HardSwish      x * HardSigmoid(x), alpha 1/6, beta 1/2

Adding and multiplying compute in integers, saturation does what Clip does, and a factor is a change of scale: measured
on a feature map, HardSwish takes 0.6 of the time that it takes in float between two conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from onnxport.quantize.grids import Array
from onnxport.quantize.placement.operators import KERNELS, PRODUCTS


def to_integer_forms(graph: ir.Graph) -> bool:
    """Rewrites the nodes whose operand comes from what computes in integers; whether there were any."""
    changed = False
    for node in list(graph):
        form = _FORMS.get(node.op_type) if node.domain == "" else None
        if form is not None and _comes_of_integers(node) and node.outputs[0].dtype == ir.DataType.FLOAT:
            changed |= form(_Place(graph, node))
    return changed


def _comes_of_integers(node: ir.Node) -> bool:
    makers = [value.producer() for value in node.inputs if value is not None]
    return any(maker is not None and maker.op_type in _INTEGERS for maker in makers)


_INTEGERS = frozenset((*PRODUCTS, *KERNELS, "Relu", "Clip", "Sub", "Div", "HardSigmoid", "HardSwish"))


class _Place:
    """Where a node stands: what takes its place is added before it, then gets its name, result and users."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self.node, self._graph, self._count = node, graph, 0

    def constant(self, index: int) -> Array | None:
        """The value of an input that is a constant."""
        value = self.node.inputs[index]
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        return value.const_value.numpy()

    def float(self, name: str, default: float) -> float:
        return self.node.attributes.get_float(name, default)

    def add(self, op: str, *operands: ir.Value | Array | None) -> ir.Value:
        """A node before this one; arrays among its operands become initializers."""
        inputs = [
            self._initializer(each) if isinstance(each, np.ndarray | np.generic) else each
            for each in operands
        ]
        result = ir.Value(name=self._name(), type=self.node.outputs[0].type, shape=self.node.outputs[0].shape)
        added = ir.node(op, inputs, outputs=[result], name=self._name(op))
        self._graph.insert_before(self.node, added)
        return result

    def done(self, result: ir.Value) -> bool:
        """Puts `result` in place of the node's."""
        old = self.node.outputs[0]
        name, old.name = old.name, None
        result.name = name
        maker = result.producer()
        assert maker is not None
        maker.name, self.node.name = self.node.name, None
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        self._graph.remove(self.node, safe=True)
        return True

    def _initializer(self, array: Array) -> ir.Value:
        array = np.asarray(array, np.float32)
        value = ir.Value(
            name=self._name("constant"),
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array),
        )
        self._graph.register_initializer(value)
        return value

    def _name(self, what: str = "part") -> str:
        self._count += 1
        return f"{self.node.outputs[0].name}.{what}.{self._count}"


def _subtraction(place: _Place) -> bool:
    constant = place.constant(1)
    return constant is not None and place.done(place.add("Add", place.node.inputs[0], -constant))


def _division(place: _Place) -> bool:
    constant = place.constant(1)
    if constant is None or not constant.all():
        return False
    return place.done(place.add("Mul", place.node.inputs[0], 1 / constant))


def _hard_sigmoid(place: _Place) -> bool:
    gate = _gate(place, place.float("alpha", 0.2), place.float("beta", 0.5))
    return gate is not None and place.done(gate)


def _hard_swish(place: _Place) -> bool:
    gate = _gate(place, 1 / 6, 0.5)
    return gate is not None and place.done(place.add("Mul", place.node.inputs[0], gate))


def _gate(place: _Place, alpha: float, beta: float) -> ir.Value | None:
    """Clip(alpha * x + beta, 0, 1); None where alpha is not positive."""
    if alpha <= 0 or place.constant(0) is not None:
        return None
    moved = place.add("Add", place.node.inputs[0], np.array(beta / alpha))
    limited = place.add("Clip", moved, np.array(0.0), np.array(1 / alpha))
    return place.add("Mul", limited, np.array(alpha))


_FORMS: Mapping[str, Callable[[_Place], bool]] = {
    "Sub": _subtraction,
    "Div": _division,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
}
