"""One number in, one number out, whatever the shape: functions, rounding, and what hands on as it is."""

from __future__ import annotations

import numpy as np

from onnxport.converters.coreml.builder import Compute, MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.numbers.integer_widths import wrapped
from onnxport.converters.coreml.registry import REGISTRY, lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import Lowering, NodeView

# ONNX op -> MIL op of one float operand, same semantics.
_UNARY = {
    "Acos": "acos",
    "Asin": "asin",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Round": "round",  # halves to even, in both
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_LOG_2 = float(np.log(2))


def _unary(op: str) -> Lowering[Value, MilBuilder]:
    def lowering(node: NodeView[Value], mil: MilBuilder) -> None:
        node.emit(mil.emit(op, x=node.x))

    return lowering


REGISTRY.table({op: _unary(name) for op, name in _UNARY.items()})


@lower("Log")
def log(node: NodeView[Value], mil: MilBuilder) -> None:
    """log x (ONNX Log-13); MIL adds 1e-45 unless told not to."""
    node.emit(mil.log(x=node.x, epsilon=0.0))


@lower("Reciprocal")
def reciprocal(node: NodeView[Value], mil: MilBuilder) -> None:
    """1 / x (ONNX Reciprocal-13); MIL's inverse adds 1e-4 unless told not to."""
    node.emit(mil.inverse(x=node.x, epsilon=0.0))


@lower("Abs")
def absolute(node: NodeView[Value], mil: MilBuilder) -> None:
    """|x| (ONNX Abs-13), of the lowest integer itself."""
    x = node.x
    if x.dtype.kind == "u":
        node.emit(x)
    elif x.is_integer:
        node.emit(wrapped(Term(mil, x).call("abs"), x.dtype).value)
    else:
        node.emit(mil.abs(x=x))


@lower("Neg")
def negative(node: NodeView[Value], mil: MilBuilder) -> None:
    """-x (ONNX Neg-13), of the lowest integer itself."""
    node.emit(wrapped(-Term(mil, node.x), node.x.dtype).value)


@lower("Sign")
def sign(node: NodeView[Value], mil: MilBuilder) -> None:
    node.emit(mil.sign(x=node.x))


@lower("Acosh")
def acosh(node: NodeView[Value], mil: MilBuilder) -> None:
    """acosh x (ONNX Acosh-22) in float32: near 1 by its tanh, s / x, where the logarithm would cancel."""
    mil.compute = "fp32"
    x = Term(mil, node.x)
    s = (x - 1.0).call("sqrt") * (x + 1.0).call("sqrt")
    far = (x * 0.5 + s * 0.5).call("log", epsilon=0.0) + _LOG_2
    node.emit((x < 2.0).where((s / x).call("atanh"), far).value)


@lower("Asinh")
def asinh(node: NodeView[Value], mil: MilBuilder) -> None:
    """asinh x (ONNX Asinh-22) in float32: small ones by their tanh, large ones by log 2x."""
    mil.compute = "fp32"
    x = Term(mil, node.x)
    size = x.call("abs")
    bounded = size.minimum(1e4)
    root = (bounded * bounded + 1.0).call("sqrt")
    near = (bounded / root).minimum(0.5).call("atanh")
    middle = (bounded + root).call("log", epsilon=0.0)
    far = size.maximum(1.0).call("log", epsilon=0.0) + _LOG_2
    found = (size < 0.5).where(near, (size > 1e4).where(far, middle))
    node.emit((x < 0.0).where(-found, found).value)


@lower("IsNaN")
def is_nan(node: NodeView[Value], mil: MilBuilder) -> None:
    """Whether an element is no number (ONNX IsNaN-20): the only one that differs from itself."""
    mil.compute = _held_in(node.x)
    node.emit(mil.not_equal(x=node.x, y=node.x))


@lower("IsInf")
def is_inf(node: NodeView[Value], mil: MilBuilder) -> None:
    """Whether an element is infinite, of either sign or of the one asked for (ONNX IsInf-20)."""
    mil.compute = _held_in(node.x)
    x = Term(mil, node.x)
    up, down = (bool(node.attribute(f"detect_{name}", 1)) for name in ("positive", "negative"))
    if up and down:
        node.emit(x.call("abs").equals(np.inf).value)
    elif up or down:
        node.emit(x.equals(np.inf if up else -np.inf).value)
    else:
        node.unsupported("detects neither sign")


def _held_in(x: Value) -> Compute:
    """The type in which `x` is there: a cast to half precision would make infinities of its own."""
    return "fp16" if set(x.copies) == {"fp16"} else "fp32"
