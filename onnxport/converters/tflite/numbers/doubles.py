"""Sums in float64's full range and precision, from int64 arithmetic and casts.

TFLite has no float64 arithmetic, and float32 overflows where float64 has not begun to. Both numbers are scaled by a
power of two so that the larger one fills an int64, added as integers, and scaled back.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder
from onnxport.converters.tflite.numbers.integer_arithmetic import reinterpret
from onnxport.converters.tflite.values import Value, scalar

_UNIT = 1 << 52  # of the exponent among the bits
_BIAS = 1023
_FILLS = 60  # exponent of numbers of which two make no more than an int64


def _int64(number: int) -> Value:
    return scalar(number, np.int64)


_ZERO, _SIGN, _LARGEST = _int64(0), _int64(-(1 << 63)), _int64(2047 * _UNIT)


def is_exact(tfl: TflBuilder, *values: Value) -> bool:
    """Tell if operands are float64 and none was computed in float32."""
    return all(
        value.dtype == np.float64
        and (value.constant is not None or tfl.tensor(value, tfl.common_order(value)) not in tfl.twins)
        for value in values
    )


def total(tfl: TflBuilder, name: str, a: Value, b: Value) -> Value:
    """Return the "add" or "sub" of two float64 operands; subnormal numbers count as 0."""
    op = partial(broadcast, tfl)
    x, y = (reinterpret(tfl, value, np.int64) for value in (a, b))
    y = op("add", y, _SIGN) if name == "sub" else y
    of_x, of_y = _exponent(tfl, x), _exponent(tfl, y)
    larger = op("maximum", of_x, of_y)
    scale = op("sub", larger, _int64((_BIAS + _FILLS) * _UNIT))
    whole = op("add", _fixed(tfl, x, of_x, scale), _fixed(tfl, y, of_y, scale))
    result = _rescaled(tfl, reinterpret(tfl, tfl.converted(whole, np.float64), np.int64), scale)
    # NaN and infinities are float32's as well.
    special = op("add", _special(tfl, x, of_x), _special(tfl, y, of_y))
    bits = reinterpret(tfl, tfl.converted(special, np.float64), np.int64)
    return reinterpret(tfl, op("select_v2", op("equal", larger, _LARGEST), bits, result), np.float64)


def _exponent(tfl: TflBuilder, bits: Value) -> Value:
    """Return the bits of the exponent."""
    op = partial(broadcast, tfl)
    magnitude = op("select_v2", op("less", bits, _ZERO), op("sub", bits, _SIGN), bits)
    return op("sub", magnitude, op("floor_mod", magnitude, _int64(_UNIT)))


def _fixed(tfl: TflBuilder, bits: Value, exponent: Value, scale: Value) -> Value:
    """Return the number as int64 after division by the scale."""
    op = partial(broadcast, tfl)
    vanishes = op("logical_or", op("less_equal", exponent, scale), op("equal", exponent, _ZERO))
    scaled = op("select_v2", vanishes, _ZERO, op("sub", bits, scale))
    return tfl.converted(reinterpret(tfl, scaled, np.float64), np.int64)


def _rescaled(tfl: TflBuilder, bits: Value, scale: Value) -> Value:
    """Return the number times the scale; infinite or 0 beyond the range."""
    op = partial(broadcast, tfl)
    sign = op("select_v2", op("less", bits, _ZERO), _SIGN, _ZERO)
    own = _exponent(tfl, bits)
    exponent = op("add", own, scale)
    vanishes = op("logical_or", op("less_equal", exponent, _ZERO), op("equal", own, _ZERO))
    result = op("select_v2", vanishes, sign, op("add", bits, scale))
    return op("select_v2", op("greater_equal", exponent, _LARGEST), op("add", sign, _LARGEST), result)


def _special(tfl: TflBuilder, bits: Value, exponent: Value) -> Value:
    """Return NaN or infinity in float32, else 0."""
    kept = broadcast(tfl, "select_v2", broadcast(tfl, "equal", exponent, _LARGEST), bits, _ZERO)
    return tfl.converted(reinterpret(tfl, kept, np.float64), np.float32)
