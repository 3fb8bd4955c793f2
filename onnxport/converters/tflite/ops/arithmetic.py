"""Division, remainders, powers and bits: ops with integer semantics of their own."""

from __future__ import annotations

import numpy as np

from onnxport.converters.semantics import check_divisor
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.numbers.integer_arithmetic import bitwise, divide, power, remainder, shift
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, constant


@lower("Div")
def div(node: TflNode, tfl: TflBuilder) -> None:
    """a / b, integers truncated toward zero (ONNX Div-14)."""
    a, b = node.input(0), node.input(1)
    if a.dtype.kind in "iu":
        check_divisor(node, b)
    if a.dtype == np.int64 and a.is_size and b.is_size:
        # Sizes fit int32, in which TFLite can divide.
        narrow = tfl.broadcast("div", tfl.convert(a, np.int32), tfl.convert(b, np.int32))
        node.emit(tfl.convert(narrow, np.int64))
        return
    wide = a.dtype.name in ("int64", "uint32", "uint64")
    node.emit(divide(tfl, a, b) if wide else tfl.broadcast("div", a, b))


@lower("Mod")
def mod(node: TflNode, tfl: TflBuilder) -> None:
    """The remainder with the divisor's sign, or with fmod=1 the dividend's (ONNX Mod-13)."""
    a, b = node.input(0), node.input(1)
    if a.dtype.kind in "iu":
        check_divisor(node, b)
    b = _replace_minus_one(tfl, b)
    fmod = node.attribute("fmod", 0)
    if a.dtype == np.uint64:
        node.emit(remainder(tfl, a, b))
    elif not fmod or a.dtype.kind == "u":
        node.emit(tfl.broadcast("floor_mod", a, b))
    else:
        node.emit(_truncated_remainder(tfl, a, b))


def _replace_minus_one(tfl: TflBuilder, divisor: Value) -> Value:
    """Divide by 1 instead of -1, with the same remainder: the lowest integer by -1 kills the interpreter."""
    if divisor.dtype.name not in ("int32", "int64") or divisor.is_natural:
        return divisor
    if divisor.constant is not None:
        return constant(np.where(divisor.constant == -1, 1, divisor.constant).astype(divisor.dtype))
    return tfl.broadcast("select_v2", tfl.broadcast("equal", divisor, -1), 1, divisor)


def _truncated_remainder(tfl: TflBuilder, a: Value, b: Value) -> Value:
    """Return the remainder with the dividend's sign, from FLOOR_MOD, which gives the divisor's."""
    op = tfl.broadcast
    negative = op("less", a, 0)
    if a.dtype.kind == "i":
        rest = op("floor_mod", a, b)
        other_sign = op("not_equal", op("less", rest, 0), negative)
        moves = op("logical_and", other_sign, op("not_equal", rest, 0))
        return op("select_v2", moves, op("sub", rest, b), rest)
    rest = op("floor_mod", _magnitude(tfl, a), _magnitude(tfl, b))
    return op("select_v2", negative, op("sub", 0, rest), rest)


def _magnitude(tfl: TflBuilder, value: Value) -> Value:
    if value.constant is not None:
        return constant(np.abs(value.constant))
    return tfl.broadcast("maximum", value, tfl.broadcast("sub", 0, value))


@lower("Pow")
def pow_(node: TflNode, tfl: TflBuilder) -> None:
    """base ^ exponent in the base's type (ONNX Pow-15)."""
    base, exponent = node.input(0), node.input(1)
    if exponent.constant is not None and exponent.constant.size == 1 and exponent.constant.item() == 2:
        square = tfl.broadcast("mul", base, base)
        if exponent.rank > base.rank:  # the result has the exponent's rank
            square = tfl.broadcast("mul", square, constant(np.ones(exponent.constant.shape, base.dtype)))
        node.emit(square)
    elif base.dtype.kind not in "iu":
        node.emit(tfl.broadcast("pow", base, tfl.convert(exponent, base.dtype)))
    elif exponent.dtype.kind in "iu":
        node.emit(power(tfl, base, exponent))
    else:
        node.emit(_float_power(node, tfl, base, exponent))


def _float_power(node: TflNode, tfl: TflBuilder, base: Value, exponent: Value) -> Value:
    """An integer to the power of a float; whole powers in integers, lest the result is cut off one too low."""
    if exponent.constant is not None:
        if (exponent.constant != np.rint(exponent.constant)).any():
            node.unsupported(f"{base.dtype} to a power that is not whole; cast the base to a float type")
        return power(tfl, base, tfl.convert(exponent, np.int64))
    exponent = tfl.float32(exponent)
    count = tfl.convert(exponent, np.int64)
    is_whole = tfl.broadcast("equal", exponent, tfl.convert(count, np.float32))
    root = tfl.convert(tfl.broadcast("pow", tfl.float32(base), exponent), base.dtype)
    return tfl.broadcast("select_v2", is_whole, power(tfl, base, count), root)


@lower("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise_(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(bitwise(tfl, node.op.removeprefix("Bitwise").lower(), node.input(0), node.input(1)))


@lower("BitwiseNot")
def bitwise_not(node: TflNode, tfl: TflBuilder) -> None:
    """Every bit flipped (ONNX BitwiseNot-18): the largest number (or -1) minus x."""
    all_bits = np.iinfo(node.x.dtype).max if node.x.dtype.kind == "u" else -1
    node.emit(tfl.broadcast("sub", all_bits, node.x))


@lower("BitShift")
def bit_shift(node: TflNode, tfl: TflBuilder) -> None:
    """Unsigned integers times or divided by powers of two (ONNX BitShift-11)."""
    node.emit(shift(tfl, node.input(0), node.input(1), left=node.attribute("direction") == "LEFT"))
