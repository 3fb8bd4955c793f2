"""Operators rewritten into equivalent ones that quantize better.

    x - c                               x + (-c)
    x / c                               x * (1 / c)
    x * Clip(x + 3, 0, 6) / 6           HardSwish
    x * HardSigmoid(x)                  HardSwish, where alpha is 1/6 and beta 1/2
    Gemm(x, w, r), r computed           Gemm(x, w) + r
    HardSigmoid behind a Conv           Clip(x + beta / alpha, 0, 1 / alpha) * alpha

A Gemm has no integers for a computed summand; ONNX Runtime fuses MatMul and Add so in recurrent cells and residual
branches. The last form costs nothing: the sum joins the Conv's bias, saturation clips, and the factor is a change of
scale. A HardSwish stays in float: in integers it takes 0.6 of the time, but an 8-bit gate is rounded to one side near
0, which cost PP-OCR's recognizer 2 dB. As one operator it needs only one DequantizeLinear before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.quantize.placement.operators import KERNELS, PRODUCTS

_FIRST_WITH_HARD_SWISH = 14  # opset
_FLOAT32 = 1e-6


def canonicalize_operators(graph: ir.Graph, opset: int) -> bool:
    """Rewrite the nodes whose operand is computed in integers; return whether there were any."""
    changed = False
    for node in list(graph):
        form = _FORMS.get(node.op_type) if node.domain == "" else None
        if form is None or node.outputs[0].dtype != ir.DataType.FLOAT:
            continue
        if node.op_type in PRODUCTS or _is_computed_in_integers(node):
            changed |= form(_Replacement(graph, node, opset))
    return changed


def _is_computed_in_integers(node: ir.Node) -> bool:
    makers = [value.producer() for value in node.inputs if value is not None]
    return any(maker is not None and maker.op_type in _INTEGERS for maker in makers)


_INTEGERS = frozenset((*PRODUCTS, *KERNELS, "Relu", "Clip", "Sub", "Div", "HardSigmoid", "HardSwish"))


class _Replacement:
    """The place of a node: its replacement is inserted before it and takes its name, result and users."""

    def __init__(self, graph: ir.Graph, node: ir.Node, opset: int) -> None:
        self.node, self.opset, self._graph, self._count = node, opset, graph, 0

    def constant(self, index: int) -> Array | None:
        """Return the value of a constant input."""
        value = self.node.inputs[index]
        if value is None or value.const_value is None or value.is_graph_input():
            return None
        return value.const_value.numpy()

    def attribute(self, name: str, default: float) -> float:
        return self.node.attributes.get_float(name, default)

    def add(
        self, op: str, *operands: ir.Value | Array | None, attributes: Sequence[ir.Attr] = ()
    ) -> ir.Value:
        """Add a node before this one; array operands become initializers."""
        arrays = (np.ndarray, np.generic)
        inputs = [self._initializer(each) if isinstance(each, arrays) else each for each in operands]
        result = ir.Value(name=self._name(), type=self.node.outputs[0].type, shape=self.node.outputs[0].shape)
        added = ir.Node("", op, inputs, attributes, outputs=[result], name=self._name(op))
        self._graph.insert_before(self.node, added)
        return result

    def done(self, result: ir.Value, named: ir.Value | None = None) -> bool:
        """Replace the node's result by `result`; the node that makes `named`, or `result`, takes its name."""
        old = self.node.outputs[0]
        name, old.name = old.name, None
        result.name = name
        maker = (named or result).producer()
        assert maker is not None
        maker.name, self.node.name = self.node.name, None
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        self._remove(self.node)
        return True

    def _remove(self, node: ir.Node) -> None:
        """Remove a node and everything only it needs."""
        makers = [value.producer() for value in node.inputs if value is not None]
        self._graph.remove(node, safe=True)
        for maker in dict.fromkeys(makers):
            unused = maker is not None and not any(o.uses() or o.is_graph_output() for o in maker.outputs)
            if maker is not None and unused:
                self._remove(maker)

    def _initializer(self, array: Array) -> ir.Value:
        return add_initializer(self._graph, self._name("constant"), np.asarray(array, np.float32))

    def _name(self, what: str = "part") -> str:
        self._count += 1
        return f"{self.node.outputs[0].name}.{what}.{self._count}"


def _subtraction(place: _Replacement) -> bool:
    constant = place.constant(1)
    return constant is not None and place.done(place.add("Add", place.node.inputs[0], -constant))


def _division(place: _Replacement) -> bool:
    constant = place.constant(1)
    if constant is None or not constant.all():
        return False
    gated = _hard_swish_operand(place.node.inputs[0]) if constant.size == 1 and constant.item() == 6 else None
    if gated is not None and place.opset >= _FIRST_WITH_HARD_SWISH:
        return place.done(place.add("HardSwish", gated))
    return place.done(place.add("Mul", place.node.inputs[0], 1 / constant))


def _product(place: _Replacement) -> bool:
    for value, gate in (place.node.inputs, place.node.inputs[::-1]):
        maker = _is_only_reader(gate, "HardSigmoid")
        if maker is None or value is None or maker.inputs[0] is not value:
            continue
        alpha, beta = maker.attributes.get_float("alpha", 0.2), maker.attributes.get_float("beta", 0.5)
        if abs(alpha - 1 / 6) < _FLOAT32 and beta == 0.5 and place.opset >= _FIRST_WITH_HARD_SWISH:
            return place.done(place.add("HardSwish", value))
    return False


def _hard_sigmoid(place: _Replacement) -> bool:
    """Rewrite HardSigmoid as Clip(alpha * x + beta, 0, 1)."""
    alpha, beta = place.attribute("alpha", 0.2), place.attribute("beta", 0.5)
    value = place.node.inputs[0]
    maker = None if value is None else value.producer()
    if alpha <= 0 or maker is None or maker.op_type != "Conv" or len(maker.outputs[0].uses()) != 1:
        return False
    moved = place.add("Add", value, np.array(beta / alpha))
    limited = place.add("Clip", moved, np.array(0.0), np.array(1 / alpha))
    return place.done(place.add("Mul", limited, np.array(alpha)))


def _sum_with_result(place: _Replacement) -> bool:
    """Take a summand out of a Gemm that is no bias: a computed one, or a constant with more than one row."""
    node = place.node
    summand = node.inputs[2] if len(node.inputs) > 2 else None
    if summand is None or place.constant(1) is None:
        return False
    if place.attribute("alpha", 1.0) != 1 or place.attribute("beta", 1.0) != 1:
        return False  # it stays in float (placement/analysis.py)
    constant = place.constant(2)
    if constant is not None and constant.size in (1, constant.shape[-1]):
        return False
    product = place.add("Gemm", *node.inputs[:2], attributes=[*node.attributes.values()])
    total = place.add("Add", product, summand)
    return place.done(total, named=product)


def _hard_swish_operand(product: ir.Value | None) -> ir.Value | None:
    """Return x of x * Clip(x + 3, 0, 6) where nothing else reads the values between."""
    mul = _is_only_reader(product, "Mul")
    if mul is None:
        return None
    for value, gate in (mul.inputs, mul.inputs[::-1]):
        clip = _is_only_reader(gate, "Clip")
        add = _is_only_reader(clip.inputs[0], "Add") if clip is not None and len(clip.inputs) == 3 else None
        if clip is None or add is None or value is None or value not in add.inputs:
            continue
        addend = [_number(each) for each in add.inputs if each is not value]
        if [_number(end) for end in clip.inputs[1:]] == [0.0, 6.0] and addend == [3.0]:
            return value
    return None


def _is_only_reader(value: ir.Value | None, op: str) -> ir.Node | None:
    maker = None if value is None else value.producer()
    if maker is None or value is None or maker.op_type != op or maker.domain != "":
        return None
    return maker if len(value.uses()) == 1 and not value.is_graph_output() else None


def _number(value: ir.Value | None) -> float | None:
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    return float(value.const_value.numpy().item())


_FORMS: Mapping[str, Callable[[_Replacement], bool]] = {
    "Sub": _subtraction,
    "Div": _division,
    "Mul": _product,
    "Gemm": _sum_with_result,
    "HardSigmoid": _hard_sigmoid,
}
