"""Elementwise operators of one input, and `cast`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, kernel, register

# Up to 0.5: x * P(x^2) / Q(x^2), highest power first.
_NEAR = (
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
# From 0.5 to 4: 1 - exp(-x^2) * P(x) / Q(x). Beyond 4, erf is 1 in float32.
_FAR = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_SLICE = 1 << 16


def erf(x: Array) -> Array:
    """Return erf of a float32 array, to float32's precision; in slices, to keep intermediate arrays small."""
    flat = np.ascontiguousarray(x, np.float32).reshape(-1)
    found = np.empty_like(flat)
    for start in range(0, flat.size, _SLICE):
        found[start : start + _SLICE] = _erf(flat[start : start + _SLICE].astype(np.float64))
    return found.reshape(x.shape)


def _erf(x: Array) -> Array:
    size = np.minimum(np.abs(x), 6)
    squared = size * size
    near = size * np.polyval(_NEAR[0], squared) / np.polyval(_NEAR[1], squared)
    far = 1 - np.exp(-squared) * np.polyval(_FAR[0], size) / np.polyval(_FAR[1], size)
    return np.copysign(np.where(size <= 0.5, near, far), x)


@kernel("exp2")
def exp2(x: Array, call: Call) -> Array:
    if x.dtype.kind != "i":
        return np.asarray(np.exp2(x))
    if call.strict and (x < 0).any():
        call.undefined("two to a negative power is not an integer")
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
