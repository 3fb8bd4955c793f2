"""Two numbers in, one out: sums, products, quotients, powers, extremes, shifts and bits, broadcast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term, terms
from onnxport.converters.coreml.numbers.integer_widths import (
    bitwise,
    is_natural,
    power,
    product,
    quotient,
    remainder,
    shifted,
    wrapped,
)
from onnxport.converters.coreml.registry import REGISTRY, lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

Dtype = np.dtype[np.generic]


def _sum(a: Term, b: Term, dtype: Dtype) -> Term:
    return wrapped(a + b, dtype)


def _difference(a: Term, b: Term, dtype: Dtype) -> Term:
    return wrapped(a - b, dtype)


def _largest(a: Term, b: Term, dtype: Dtype) -> Term:
    return a.maximum(b)


def _smallest(a: Term, b: Term, dtype: Dtype) -> Term:
    return a.minimum(b)


_Joined = Callable[[Term, Term, Dtype], Term]
_JOINED: dict[str, _Joined] = {
    "Add": _sum,
    "Max": _largest,
    "Min": _smallest,
    "Mul": product,
    "Sub": _difference,
    "Sum": _sum,
}


# Of which operands, none of them negative, the result is not negative either; sizes and indices are of 64 bits.
_NATURAL = {"Add": all, "Max": any, "Min": all, "Mul": all, "Sum": all}


def _emit_joined(joined: _Joined, node: NodeView[Value], mil: MilBuilder) -> None:
    """All operands joined one after the other."""
    values = node.rest()
    dtype = values[0].dtype
    found = reduce(lambda a, b: joined(a, b, dtype), terms(mil, values)).value
    if dtype == np.int64 and node.op in _NATURAL and found is not values[0]:
        found.is_natural = _NATURAL[node.op](map(is_natural, values))
    node.emit(found)


REGISTRY.table({op: partial(_emit_joined, joined) for op, joined in _JOINED.items()})


@lower("Mean")
def mean(node: NodeView[Value], mil: MilBuilder) -> None:
    """The mean of all operands, element by element (ONNX Mean-13)."""
    values = terms(mil, node.rest())
    node.emit((reduce(lambda a, b: a + b, values) / len(values)).value)


@lower("Div")
def div(node: NodeView[Value], mil: MilBuilder) -> None:
    """a / b, integers truncated toward zero (ONNX Div-14)."""
    a, b = terms(mil, (node.input(0), node.input(1)))
    if a.value.is_float:
        node.emit((a / b).value)
        return
    _refuse_zero(node, b.value)
    if is_natural(a.value) and is_natural(b.value):
        found = (a // b).value
        found.is_natural = True
        node.emit(found)
    else:
        node.emit(quotient(a, b, a.value.dtype).value)


@lower("Mod")
def mod(node: NodeView[Value], mil: MilBuilder) -> None:
    """The remainder with the divisor's sign, or with fmod=1 the dividend's (ONNX Mod-13)."""
    a, b = terms(mil, (node.input(0), node.input(1)))
    like_dividend = bool(node.attribute("fmod", 0))
    if a.value.is_float:
        # Of magnitudes the rest has no sign to choose; the result takes the dividend's.
        rest = a.call("abs") % b.call("abs")
        node.emit((a < 0.0).where(-rest, rest).value)
        if not like_dividend:
            node.unsupported("of floats without fmod=1, which ONNX does not allow")
        return
    _refuse_zero(node, b.value)
    node.emit(remainder(a, b, like_dividend=like_dividend).value)


def _refuse_zero(node: NodeView[Value], divisor: Value) -> None:
    if divisor.constant is not None and not divisor.constant.all():
        node.unsupported("divides integers by zero")


@lower("Pow")
def pow_(node: NodeView[Value], mil: MilBuilder) -> None:
    """base ^ exponent in the base's type (ONNX Pow-15)."""
    base, exponent = terms(mil, (node.input(0), node.input(1)))
    dtype, known = base.value.dtype, exponent.value.constant
    if base.value.is_float:
        fixed = known.item() if known is not None and known.size == 1 and known.ndim <= base.value.rank else 0
        if fixed in (2, 3):
            square = base * base
            node.emit((square if fixed == 2 else square * base).value)
        else:
            node.emit(mil.pow(x=base.value, y=_real(exponent)))
    elif exponent.value.is_integer:
        node.emit(power(base, exponent, dtype).value)
    elif known is None:
        mil.compute = "fp32"
        whole = exponent.whole()
        is_whole = whole.real().equals(exponent)
        # What is used below only is small where it is not, so that the cast is defined.
        root = base.real().call("pow", y=is_whole.where(exponent * 0.0, exponent).value).whole()
        node.emit(is_whole.where(power(base, whole, dtype), wrapped(root, dtype)).value)
    elif (known == np.rint(known)).all():
        node.emit(power(base, Term(mil, mil.constant(known.astype(np.int64))), dtype).value)
    else:
        node.unsupported(f"{dtype} to a power that is not whole; cast the base to a float type")


def _real(x: Term) -> Value:
    if x.value.constant is not None:
        return x.mil.constant(x.value.constant.astype(np.float32))
    return x.real().value


@lower("Clip")
def clip(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = min(max(x, low), high) (ONNX Clip-13); bounds may be absent, or computed at run time."""
    x, low, high = node.x, node.optional(1), node.optional(2)
    if x.is_float and low is not None and high is not None:
        bounds = [None if each.constant is None else float(each.constant.item()) for each in (low, high)]
        if bounds[0] is not None and bounds[1] is not None:
            held = [mil.argument(bound) for bound in bounds]
            if held[0] < held[1]:
                node.emit(mil.clip(x=x, alpha=bounds[0], beta=bounds[1]))
                return
    natural = all(is_natural(each) for each in (low, high) if each is not None) and (
        low is not None or is_natural(x)
    )
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = mil.emit(name, x=x, y=bound)
    x.is_natural |= natural
    node.emit(x)


# ---- bits


def _bitwise(name: str, node: NodeView[Value], mil: MilBuilder) -> None:
    a, b = node.input(0), node.input(1)
    node.emit(bitwise(mil, name, a, b, a.dtype).value)


REGISTRY.table({f"Bitwise{name.capitalize()}": partial(_bitwise, name) for name in ("and", "or", "xor")})


@lower("BitwiseNot")
def bitwise_not(node: NodeView[Value], mil: MilBuilder) -> None:
    """Every bit flipped (ONNX BitwiseNot-18), which is the largest number (or -1) less so many."""
    x = node.x
    if x.dtype.name in ("uint32", "uint64"):
        node.unsupported(
            f"of {x.dtype.name} gives numbers beyond the 32 bits, one of them the sign, of Core ML's integers"
        )
    node.emit(((int(np.iinfo(x.dtype).max) if x.dtype.kind == "u" else -1) - Term(mil, x)).value)


@lower("BitShift")
def bit_shift(node: NodeView[Value], mil: MilBuilder) -> None:
    """Unsigned integers times or divided by powers of two (ONNX BitShift-11)."""
    x, count = terms(mil, (node.input(0), node.input(1)))
    node.emit(shifted(x, count, x.value.dtype, left=node.attribute("direction") == "LEFT").value)
