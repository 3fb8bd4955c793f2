"""Functions of single elements: transcendental ones, rounding, signs and tests for special values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnxport.converters.coreml.builder import Compute, MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.numbers.integer_widths import wrap
from onnxport.converters.coreml.registry import REGISTRY, lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView
from onnxport.converters.semantics import infinity_signs

# ONNX op -> MIL op of one operand, same semantics.
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
    "Not": "logical_not",
    "Round": "round",  # both round half to even
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_LOG_2 = float(np.log(2))


def _lower_unary(name: str, node: NodeView[Value], mil: MilBuilder) -> None:
    node.emit(mil.emit(name, x=node.x))


REGISTRY.table({op: partial(_lower_unary, name) for op, name in _UNARY.items()})


def formula(op: str, **defaults: float) -> Callable[[Callable[..., Term]], Callable[..., Term]]:
    """Register a formula of x and of the op's attributes, given by name with their defaults."""

    def register(body: Callable[..., Term]) -> Callable[..., Term]:
        def lowering(node: NodeView[Value], mil: MilBuilder) -> None:
            attributes = {name: float(node.attribute(name, default)) for name, default in defaults.items()}
            node.emit(body(Term(mil, node.x), **attributes).value)

        lower(op)(lowering)
        return body

    return register


@formula("Log")
def log(x: Term) -> Term:
    """log x (ONNX Log-13); MIL adds 1e-45 by default."""
    return x.call("log", epsilon=0.0)


@formula("Reciprocal")
def reciprocal(x: Term) -> Term:
    """1 / x (ONNX Reciprocal-13); MIL's inverse adds 1e-4 by default."""
    return x.call("inverse", epsilon=0.0)


@formula("Abs")
def absolute(x: Term) -> Term:
    """|x| (ONNX Abs-13); the lowest integer gives itself."""
    if x.value.dtype.kind == "u":
        return x
    return wrap(x.call("abs"), x.value.dtype) if x.value.is_integer else x.call("abs")


@formula("Neg")
def negative(x: Term) -> Term:
    """-x (ONNX Neg-13); the lowest integer gives itself."""
    return wrap(-x, x.value.dtype)


@formula("Acosh")
def acosh(x: Term) -> Term:
    """acosh x (ONNX Acosh-22) in float32: near 1 from its tanh, s / x, since the logarithm would cancel."""
    x.mil.compute = "fp32"
    s = (x - 1.0).call("sqrt") * (x + 1.0).call("sqrt")
    far = (x * 0.5 + s * 0.5).call("log", epsilon=0.0) + _LOG_2
    return (x < 2.0).where((s / x).call("atanh"), far)


@formula("Asinh")
def asinh(x: Term) -> Term:
    """asinh x (ONNX Asinh-22) in float32: small ones from their tanh, large ones as log 2x."""
    x.mil.compute = "fp32"
    size = x.call("abs")
    bounded = size.minimum(1e4)
    root = (bounded * bounded + 1.0).call("sqrt")
    near = (bounded / root).minimum(0.5).call("atanh")
    middle = (bounded + root).call("log", epsilon=0.0)
    far = size.maximum(1.0).call("log", epsilon=0.0) + _LOG_2
    found = (size < 0.5).where(near, (size > 1e4).where(far, middle))
    return (x < 0.0).where(-found, found)


@formula("IsNaN")
def is_nan(x: Term) -> Term:
    """x != x (ONNX IsNaN-20)."""
    x.mil.compute = _stored_type(x.value)
    return x.differs(x)


@lower("IsInf")
def is_inf(node: NodeView[Value], mil: MilBuilder) -> None:
    """x == inf, x == -inf, or either (ONNX IsInf-20)."""
    mil.compute = _stored_type(node.x)
    x, signs = Term(mil, node.x), infinity_signs(node)
    node.emit((x.call("abs") if len(signs) == 2 else x).equals(signs[0] * np.inf).value)


def _stored_type(x: Value) -> Compute:
    """The type that holds x: a cast to half precision would make infinities of its own."""
    return "fp16" if set(x.copies) == {"fp16"} else "fp32"
