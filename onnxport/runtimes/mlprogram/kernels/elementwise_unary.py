"""Elementwise operators of one input, and `cast`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.erf import erf
from onnxport.runtimes.mlprogram.kernels.registry import Call, kernel, register


@kernel("exp2")
def exp2(x: Array, call: Call) -> Array:
    if x.dtype.kind != "i":
        return np.asarray(np.exp2(x))
    if call.strict and (x < 0).any():
        call.undefined("two to a negative power is no integer")
    return np.asarray(np.exp2(x.astype(np.float64)))


# MIL's operator -> the same function in NumPy. `round` rounds halves to even.
_UNARY: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": erf,
    "exp": np.exp,
    "floor": np.floor,
    "logical_not": np.logical_not,
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _epsilon(given: Array | None, default: float, call: Call) -> Array:
    """Return epsilon; its default has x's type, in which it may be zero."""
    if given is not None:
        return given
    return np.asarray(np.float16(default) if call.dtypes["x"] == "float16" else default, np.float32)


register({name: lambda x, function=function: function(x) for name, function in _UNARY.items()})
register(
    {
        "clip": lambda x, alpha, beta: np.minimum(np.maximum(x, alpha), beta),
        "identity": lambda x: x,
        "inverse": lambda x, call, epsilon=None: 1 / (x + _epsilon(epsilon, 1e-4, call)),
        "log": lambda x, call, epsilon=None: np.log(x + _epsilon(epsilon, 1e-45, call)),
        "rsqrt": lambda x, call, epsilon=None: 1 / np.sqrt(x + _epsilon(epsilon, 1e-12, call)),
        "threshold": lambda x, alpha: np.maximum(x, alpha),
    }
)


_TYPES = {"fp16": "float16", "fp32": "float32"}


@kernel("cast")
def cast(x: Array, dtype: str, call: Call) -> Array:
    """Cast; floats are truncated to integers. Values that do not fit have no documented result."""
    wanted = np.dtype(_TYPES.get(dtype, dtype))
    if call.strict and wanted.kind in "iu" and x.size and x.dtype.kind in "fiu":
        limits = np.iinfo(wanted)
        # In float64, which represents the limits of 32 bits exactly; a fraction is truncated before the comparison.
        lowest, highest = float(x.min()), float(x.max())
        if not (lowest > limits.min - 1 and highest < limits.max + 1):
            call.undefined(f"values from {lowest} to {highest} do not fit into {wanted.name}")
    return x.astype(wanted)
