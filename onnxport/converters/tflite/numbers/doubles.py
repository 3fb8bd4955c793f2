"""Sums in float64's full range and precision, from int64 arithmetic and casts.

TFLite has no float64 arithmetic, and float32 overflows where float64 has not begun to. Both numbers are scaled by a
power of two so that the larger one fills an int64, added as integers, and scaled back.
"""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.numbers.integer_arithmetic import reinterpret
from onnxport.converters.tflite.values import Value, scalar

_UNIT = 1 << 52  # of the exponent among the bits
_BIAS = 1023
_FILLS = 60  # exponent of numbers of which two make no more than an int64


_SIGN, _LARGEST = -(1 << 63), 2047 * _UNIT


def is_exact(tfl: TflBuilder, *values: Value) -> bool:
    """Return whether operands are float64 and none was computed in float32."""
    return all(
        value.dtype == np.float64
        and (value.constant is not None or tfl.tensor(value, tfl.common_order(value)) not in tfl.twins)
        for value in values
    )


def total(tfl: TflBuilder, name: str, a: Value, b: Value) -> Value:
    """Return the "add" or "sub" of two float64 operands; subnormal numbers count as 0."""
    op = tfl.broadcast
    x, y = (reinterpret(tfl, value, np.int64) for value in (a, b))
    y = op("add", y, _SIGN) if name == "sub" else y
    of_x, of_y = _exponent(tfl, x), _exponent(tfl, y)
    larger = op("maximum", of_x, of_y)
    scale = op("sub", larger, (_BIAS + _FILLS) * _UNIT)
    whole = op("add", _to_fixed_point(tfl, x, of_x, scale), _to_fixed_point(tfl, y, of_y, scale))
    result = _rescale(tfl, reinterpret(tfl, tfl.convert(whole, np.float64), np.int64), scale)
    # NaN and infinities are float32's as well.
    special = op("add", _special(tfl, x, of_x), _special(tfl, y, of_y))
    bits = reinterpret(tfl, tfl.convert(special, np.float64), np.int64)
    return reinterpret(tfl, op("select_v2", op("equal", larger, _LARGEST), bits, result), np.float64)


def _exponent(tfl: TflBuilder, bits: Value) -> Value:
    """Return the bits of the exponent."""
    op = tfl.broadcast
    magnitude = op("select_v2", op("less", bits, 0), op("sub", bits, _SIGN), bits)
    return op("sub", magnitude, op("floor_mod", magnitude, _UNIT))


def _to_fixed_point(tfl: TflBuilder, bits: Value, exponent: Value, scale: Value) -> Value:
    """Return the number as int64 after division by the scale."""
    op = tfl.broadcast
    vanishes = op("logical_or", op("less_equal", exponent, scale), op("equal", exponent, 0))
    scaled = op("select_v2", vanishes, 0, op("sub", bits, scale))
    return tfl.convert(reinterpret(tfl, scaled, np.float64), np.int64)


def _rescale(tfl: TflBuilder, bits: Value, scale: Value) -> Value:
    """Return the number times the scale; infinite or 0 beyond the range."""
    op = tfl.broadcast
    sign = op("select_v2", op("less", bits, 0), scalar(_SIGN, np.int64), scalar(0, np.int64))
    own = _exponent(tfl, bits)
    exponent = op("add", own, scale)
    vanishes = op("logical_or", op("less_equal", exponent, 0), op("equal", own, 0))
    result = op("select_v2", vanishes, sign, op("add", bits, scale))
    return op("select_v2", op("greater_equal", exponent, _LARGEST), op("add", sign, _LARGEST), result)


def _special(tfl: TflBuilder, bits: Value, exponent: Value) -> Value:
    """Return NaN or infinity in float32, else 0."""
    kept = tfl.broadcast("select_v2", tfl.broadcast("equal", exponent, _LARGEST), bits, 0)
    return tfl.convert(reinterpret(tfl, kept, np.float64), np.float32)
