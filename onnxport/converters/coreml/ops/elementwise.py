"""One number in, one number out, whatever the shape."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import REGISTRY
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import Lowering, NodeView

# ONNX op -> MIL op of one float operand, same semantics.
_UNARY = {
    "Ceil": "ceil",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}


def _unary(op: str) -> Lowering[Value, MilBuilder]:
    def lowering(node: NodeView[Value], mil: MilBuilder) -> None:
        node.emit(mil.emit(op, x=node.x))

    return lowering


REGISTRY.table({op: _unary(name) for op, name in _UNARY.items()})
