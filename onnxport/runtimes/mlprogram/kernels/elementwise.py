"""One number in, one number out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.erf import erf
from onnxport.runtimes.mlprogram.registry import Call, kernel


def _exp2(x: Array, call: Call) -> Array:
    if x.dtype.kind != "i":
        return np.asarray(np.exp2(x))
    if call.strict and (x < 0).any():
        call.undefined("two to a negative power is no integer")
    return np.asarray(np.exp2(x.astype(np.float64)))


# MIL's operator -> NumPy's function of the same meaning. `round` takes halves to the even neighbour.
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


def _unary(function: Callable[..., Array]) -> Callable[[Array], Array]:
    return lambda x: function(x)


for _name, _function in _UNARY.items():
    kernel(_name)(_unary(_function))
kernel("exp2")(_exp2)


def _epsilon(given: Array | None, default: float, call: Call) -> Array:
    """The constant that is added; its default is one of x's type, in which it may be zero."""
    if given is not None:
        return given
    return np.asarray(np.float16(default) if call.dtypes["x"] == "float16" else default, np.float32)


@kernel("inverse")
def inverse(x: Array, call: Call, epsilon: Array | None = None) -> Array:
    return np.asarray(1 / (x + _epsilon(epsilon, 1e-4, call)))


@kernel("log")
def log(x: Array, call: Call, epsilon: Array | None = None) -> Array:
    return np.asarray(np.log(x + _epsilon(epsilon, 1e-45, call)))


@kernel("rsqrt")
def rsqrt(x: Array, call: Call, epsilon: Array | None = None) -> Array:
    return np.asarray(1 / np.sqrt(x + _epsilon(epsilon, 1e-12, call)))


@kernel("clip")
def clip(x: Array, alpha: Array, beta: Array) -> Array:
    return np.minimum(np.maximum(x, alpha), beta)


@kernel("threshold")
def threshold(x: Array, alpha: Array) -> Array:
    return np.maximum(x, alpha)


@kernel("identity")
def identity(x: Array) -> Array:
    return x


@kernel("relu")
def relu(x: Array) -> Array:
    return np.maximum(x, 0)


@kernel("sigmoid")
def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))
