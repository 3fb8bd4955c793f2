"""Functions of single elements: transcendental ones, rounding, signs, tests for special values, casts."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
import onnx_ir as onnx

from onnxport.converters.coreml.builder import Compute, MilBuilder, MilNode, wrap
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.numbers.integer_widths import wrap as wrap_integer
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.semantics import infinity_signs

# ONNX ops of one operand that MIL has with the same semantics (both round half to even) and name.
_SAME = "Acos Asin Atan Atanh Ceil Cos Cosh Erf Exp Floor Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
# ONNX op -> MIL's call.
_UNARY = {op: methodcaller("call", op.lower()) for op in _SAME.split()} | {
    "Log": methodcaller("call", "log", epsilon=0.0),  # MIL adds 1e-45 by default
    "Not": methodcaller("call", "logical_not"),
    "Reciprocal": methodcaller("call", "inverse", epsilon=0.0),  # MIL adds 1e-4 by default
}
_LOG_2 = float(np.log(2))


def formula(op: str, **defaults: float) -> Callable[[Callable[..., Term]], Callable[..., Term]]:
    """Register a formula of x and of the op's attributes, given by name with their defaults."""

    def register(body: Callable[..., Term]) -> Callable[..., Term]:
        @lower(op)
        def lowering(node: MilNode, mil: MilBuilder) -> None:
            attributes = {name: float(node.attribute(name, default)) for name, default in defaults.items()}
            node.emit(body(Term(mil, node.x), **attributes).value)

        return body

    return register


for _op, _call in _UNARY.items():
    formula(_op)(_call)


@formula("Abs")
def absolute(x: Term) -> Term:
    """|x| (ONNX Abs-13); the lowest integer gives itself."""
    if x.value.dtype.kind == "u":
        return x
    return wrap_integer(x.call("abs"), x.value.dtype) if x.value.is_integer else x.call("abs")


@formula("Neg")
def negative(x: Term) -> Term:
    """-x (ONNX Neg-13); the lowest integer gives itself."""
    return wrap_integer(-x, x.value.dtype)


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
def is_inf(node: MilNode, mil: MilBuilder) -> None:
    """x == inf, x == -inf, or either (ONNX IsInf-20)."""
    mil.compute = _stored_type(node.x)
    x, signs = Term(mil, node.x), infinity_signs(node)
    node.emit((x.call("abs") if len(signs) == 2 else x).equals(signs[0] * np.inf).value)


def _stored_type(x: Value) -> Compute:
    """Return the type that holds x: a cast to half precision would add infinities."""
    return "fp16" if set(x.copies) == {"fp16"} else "fp32"


@lower("Cast")
def cast(node: MilNode, mil: MilBuilder) -> None:
    """Element type conversion (ONNX Cast-25)."""
    x, target = node.x, node.output_dtype()
    node.attribute("to")
    node.ignore("round_mode", "saturate")  # of float8 only, which is refused
    if x.dtype.kind in "OUSc" or target.kind in "OUSc":
        node.unsupported("to or from strings or complex numbers, and Core ML has no such types")
    if target.kind == "V" or target.name in ("int4", "uint4", "int2", "uint2"):
        node.unsupported(f"to {target.name}, which MIL's tensors do not hold")
    if x.dtype == target:
        node.emit(x)
    elif x.constant is not None:
        node.emit(mil.constant(x.constant.astype(target)))
    elif target.kind == "b":
        node.emit(Term(mil, x).differs(0).value)
    elif target.kind in "iu":
        node.emit(_cast_to_integer(mil, x, target, is_infinite=_may_be_infinite(node.node.inputs[0])))
    else:
        type_ = "fp16" if target == np.float16 and mil.at_least("iOS16") else mil.compute
        held = x.copies.get(type_)
        node.emit(mil.cast(x=wrap(x.var), dtype=type_) if held is None else wrap(held))


def _cast_to_integer(mil: MilBuilder, x: Value, target: np.dtype[Any], *, is_infinite: bool) -> Value:
    if x.is_integer:
        return x if np.can_cast(x.dtype, target) else wrap_integer(Term(mil, x), target).value
    # From the type that holds it: half precision on the way would round or overflow.
    mil.compute = _stored_type(x)
    if is_infinite:
        low, high = (-65504.0, 65504.0) if mil.compute == "fp16" else (-(2.0**31), 2.0**31 - 128)
        x = mil.clip(x=x, alpha=low, beta=high)
    return wrap_integer(Term(mil, x).call("cast", dtype="int32"), target).value


def _may_be_infinite(value: onnx.Value | None) -> bool:
    """Return whether a cast may read an infinity, as the positions of T5 do: Log of a distance of 0.

    What it becomes is not defined, and nothing reads it then. But Core ML need not go on where ONNX Runtime does.
    """
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _STAY_INFINITE:
        node = next((each.producer() for each in node.inputs if each is not None and each.producer()), None)
    return node is not None and node.op_type in _MAKE_INFINITE


_STAY_INFINITE = frozenset("Abs Add Cast Ceil Floor Identity Mul Neg Round Sub".split())
_MAKE_INFINITE = frozenset("Div Exp Log Pow Reciprocal".split())
