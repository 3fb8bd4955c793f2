"""Comparison, logic and Where."""

from __future__ import annotations

from functools import partial

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.integer_widths import is_natural
from onnxport.converters.coreml.registry import REGISTRY, lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

# ONNX op -> MIL op of two operands, same semantics.
_BINARY = {
    "And": "logical_and",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Or": "logical_or",
    "Xor": "logical_xor",
}


def _lower_binary(name: str, node: NodeView[Value], mil: MilBuilder) -> None:
    node.emit(mil.emit(name, x=node.input(0), y=node.input(1)))


REGISTRY.table({op: partial(_lower_binary, name) for op, name in _BINARY.items()})


@lower("Equal")
def equal(node: NodeView[Value], mil: MilBuilder) -> None:
    """a == b (ONNX Equal-19); not (a xor b) for booleans, which MIL does not compare."""
    a, b = node.input(0), node.input(1)
    if a.dtype.kind in "OUS":
        node.unsupported("compares strings, which Core ML does not hold")
    if a.dtype.kind == "b":
        node.emit(mil.logical_not(x=mil.logical_xor(x=a, y=b)))
    else:
        node.emit(mil.equal(x=a, y=b))


@lower("Where")
def where(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = a where the condition holds, b elsewhere, all broadcast (ONNX Where-16)."""
    a, b = node.input(1), node.input(2)
    chosen = mil.select(cond=node.input(0), a=a, b=b)
    chosen.is_natural = is_natural(a) and is_natural(b)
    node.emit(chosen)
