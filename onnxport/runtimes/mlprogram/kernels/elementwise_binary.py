"""Elementwise operators of two inputs, with NumPy's broadcasting; integers wrap around in 32 bits. And `select`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, kernel, register

_BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


register({name: lambda x, y, function=function: function(x, y) for name, function in _BINARY.items()})


@kernel("real_div")
def real_div(x: Array, y: Array, call: Call) -> Array:
    """Return x / y. For integers, neither the rounding of a remainder nor a division by zero is documented."""
    if x.dtype.kind == "f":
        return x / y
    exact = np.where(y == 0, 1, y)
    if call.strict and ((y == 0).any() or (x % exact).any()):
        call.undefined("how a quotient of integers is rounded")
    # In integers: a quotient in float32 would be wrong from 2^24 on.
    magnitude = np.abs(x.astype(np.int64)) // np.abs(exact.astype(np.int64))
    return (magnitude * np.sign(x) * np.sign(exact)).astype(x.dtype)


@kernel("floor_div")
def floor_div(x: Array, y: Array, call: Call) -> Array:
    _check_nonzero(y, call)
    return x // y


@kernel("mod")
def mod(x: Array, y: Array, call: Call) -> Array:
    """Return the remainder of floor_div, which has the divisor's sign."""
    _check_nonzero(y, call)
    return x % y


def _check_nonzero(y: Array, call: Call) -> None:
    if call.strict and y.dtype.kind != "f" and (y == 0).any():
        call.undefined("integers divided by zero")


@kernel("pow")
def power(x: Array, y: Array, call: Call) -> Array:
    if x.dtype.kind == "f":
        return np.power(x, y)
    if call.strict and (y < 0).any():
        call.undefined("integers to a negative power")
    return np.where(y < 0, np.trunc(np.power(x.astype(np.float64), y)).astype(x.dtype), x ** np.maximum(y, 0))


@kernel("select")
def select(cond: Array, a: Array | None = None, b: Array | None = None) -> Array:
    """Choose from `a` and `b`; without them, return the positions where `cond` is true, one a row."""
    if a is None or b is None:
        return np.argwhere(cond)
    return np.where(cond, a, b)
