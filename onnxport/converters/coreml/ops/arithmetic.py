"""Arithmetic, comparison and logic on broadcast operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.formulas import Term, terms
from onnxport.converters.coreml.numbers.integer_widths import (
    bitwise,
    is_natural,
    power,
    product,
    quotient,
    remainder,
    shift,
    wrap,
)
from onnxport.converters.coreml.registry import REGISTRY, lower
from onnxport.converters.semantics import check_divisor

_Binary = Callable[[Term, Term, np.dtype[np.generic]], Term]
_BINARY: dict[str, _Binary] = {
    "Add": lambda a, b, dtype: wrap(a + b, dtype),
    "Max": lambda a, b, dtype: a.maximum(b),
    "Min": lambda a, b, dtype: a.minimum(b),
    "Mul": product,
    "Sub": lambda a, b, dtype: wrap(a - b, dtype),
    "Sum": lambda a, b, dtype: wrap(a + b, dtype),
}
# How many operands must not be negative so that the result is not; sizes and indices have 64 bits.
_NATURAL = {"Add": all, "Max": any, "Min": all, "Mul": all, "Sum": all}


def _lower_variadic(binary: _Binary, node: MilNode, mil: MilBuilder) -> None:
    values = node.rest()
    dtype = values[0].dtype
    result = reduce(lambda a, b: binary(a, b, dtype), terms(mil, values)).value
    if dtype == np.int64 and node.op in _NATURAL and result is not values[0]:
        result.is_natural = _NATURAL[node.op](map(is_natural, values))
    node.emit(result)


REGISTRY.table({op: partial(_lower_variadic, binary) for op, binary in _BINARY.items()})


@lower("Mean")
def mean(node: MilNode, mil: MilBuilder) -> None:
    """The mean of all operands, element by element (ONNX Mean-13)."""
    values = terms(mil, node.rest())
    node.emit((reduce(lambda a, b: a + b, values) / len(values)).value)


@lower("Div")
def div(node: MilNode, mil: MilBuilder) -> None:
    """a / b, integers truncated toward zero (ONNX Div-14)."""
    a, b = terms(mil, (node.input(0), node.input(1)))
    if a.value.is_float:
        node.emit((a / b).value)
        return
    check_divisor(node, b.value)
    if is_natural(a.value) and is_natural(b.value):
        found = (a // b).value
        found.is_natural = True
        node.emit(found)
    else:
        node.emit(quotient(a, b, a.value.dtype).value)


@lower("Mod")
def mod(node: MilNode, mil: MilBuilder) -> None:
    """The remainder with the divisor's sign, or with fmod=1 the dividend's (ONNX Mod-13)."""
    a, b = terms(mil, (node.input(0), node.input(1)))
    like_dividend = bool(node.attribute("fmod", 0))
    if a.value.is_float:
        # The remainder of magnitudes, with the dividend's sign.
        rest = a.call("abs") % b.call("abs")
        node.emit((a < 0.0).where(-rest, rest).value)
        if not like_dividend:
            node.unsupported("of floats without fmod=1, which ONNX does not allow")
        return
    check_divisor(node, b.value)
    node.emit(remainder(a, b, like_dividend=like_dividend).value)


@lower("Pow")
def pow_(node: MilNode, mil: MilBuilder) -> None:
    """base ^ exponent in the base's type (ONNX Pow-15)."""
    base, exponent = terms(mil, (node.input(0), node.input(1)))
    dtype, known = base.value.dtype, exponent.value.constant
    if base.value.is_float:
        fixed = known.item() if known is not None and known.size == 1 and known.ndim <= base.value.rank else 0
        if fixed in (2, 3):
            square = base * base
            node.emit((square if fixed == 2 else square * base).value)
        else:
            power_ = exponent.real().value if known is None else mil.constant(known.astype(np.float32))
            node.emit(mil.pow(x=base.value, y=power_))
    elif exponent.value.is_integer:
        node.emit(power(base, exponent, dtype).value)
    elif known is None:
        mil.compute = "fp32"
        whole = exponent.whole()
        is_whole = whole.real().equals(exponent)
        # Exponent 0 where the root is not used, so that the cast is defined.
        root = base.real().call("pow", y=is_whole.where(exponent * 0.0, exponent).value).whole()
        node.emit(is_whole.where(power(base, whole, dtype), wrap(root, dtype)).value)
    elif (known == np.rint(known)).all():
        node.emit(power(base, Term(mil, mil.constant(known.astype(np.int64))), dtype).value)
    else:
        node.unsupported(f"{dtype} to a power that is not whole; cast the base to a float type")


@lower("Clip")
def clip(node: MilNode, mil: MilBuilder) -> None:
    """y = min(max(x, low), high) (ONNX Clip-13); bounds may be absent, or computed at run time."""
    x, low, high = node.x, node.optional(1), node.optional(2)
    if x.is_float and low is not None and high is not None:
        bounds = [float(each.constant.item()) for each in (low, high) if each.constant is not None]
        if len(bounds) == 2 and mil.argument(bounds[0]) < mil.argument(bounds[1]):
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


def _lower_bitwise(name: str, node: MilNode, mil: MilBuilder) -> None:
    a, b = node.input(0), node.input(1)
    node.emit(bitwise(mil, name, a, b, a.dtype).value)


REGISTRY.table(
    {f"Bitwise{name.capitalize()}": partial(_lower_bitwise, name) for name in ("and", "or", "xor")}
)


@lower("BitwiseNot")
def bitwise_not(node: MilNode, mil: MilBuilder) -> None:
    """Every bit flipped (ONNX BitwiseNot-18): the largest number (or -1) minus x."""
    x = node.x
    if x.dtype.name in ("uint32", "uint64"):
        node.unsupported(
            f"of {x.dtype.name} gives numbers beyond the 32 bits, one of them the sign, of Core ML's integers"
        )
    node.emit(((int(np.iinfo(x.dtype).max) if x.dtype.kind == "u" else -1) - Term(mil, x)).value)


@lower("BitShift")
def bit_shift(node: MilNode, mil: MilBuilder) -> None:
    """Unsigned integers times or divided by powers of two (ONNX BitShift-11)."""
    x, count = terms(mil, (node.input(0), node.input(1)))
    node.emit(shift(x, count, x.value.dtype, left=node.attribute("direction") == "LEFT").value)


# ---- comparison and logic

# ONNX op -> MIL op of two operands, same semantics.
_COMPARISONS = {
    "And": "logical_and",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Or": "logical_or",
    "Xor": "logical_xor",
}


def _lower_comparison(name: str, node: MilNode, mil: MilBuilder) -> None:
    node.emit(mil.emit(name, x=node.input(0), y=node.input(1)))


REGISTRY.table({op: partial(_lower_comparison, name) for op, name in _COMPARISONS.items()})


@lower("Equal")
def equal(node: MilNode, mil: MilBuilder) -> None:
    """a == b (ONNX Equal-19); not (a xor b) for booleans, which MIL does not compare."""
    a, b = node.input(0), node.input(1)
    if a.dtype.kind in "OUS":
        node.unsupported("compares strings, and Core ML has no such type")
    if a.dtype.kind == "b":
        node.emit(mil.logical_not(x=mil.logical_xor(x=a, y=b)))
    else:
        node.emit(mil.equal(x=a, y=b))


@lower("Where")
def where(node: MilNode, mil: MilBuilder) -> None:
    """y = a where the condition holds, b elsewhere, all broadcast (ONNX Where-16)."""
    a, b = node.input(1), node.input(2)
    chosen = mil.select(cond=node.input(0), a=a, b=b)
    chosen.is_natural = is_natural(a) and is_natural(b)
    node.emit(chosen)
