"""Activations: one number in, one number out, some with parameters; and softmax."""

from __future__ import annotations

import math

import numpy as np

from onnxport.validate.runtimes.mil.registry import Array, kernel


@kernel("relu6")
def relu6(x: Array) -> Array:
    return np.minimum(np.maximum(x, 0), 6)


@kernel("leaky_relu")
def leaky_relu(x: Array, alpha: Array) -> Array:
    return np.where(x >= 0, x, alpha * x)


@kernel("clamped_relu")
def clamped_relu(x: Array, alpha: Array, beta: Array) -> Array:
    return np.minimum(np.where(x >= 0, x, alpha * x), beta)


@kernel("thresholded_relu")
def thresholded_relu(x: Array, alpha: Array) -> Array:
    return np.where(x >= alpha, x, np.zeros((), x.dtype))


@kernel("prelu")
def prelu(x: Array, alpha: Array) -> Array:
    return np.where(x > 0, x, _channels(alpha, x) * x)


@kernel("elu")
def elu(x: Array, alpha: Array) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@kernel("linear_activation")
def linear_activation(x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(x * alpha + beta)


@kernel("scaled_tanh")
def scaled_tanh(x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(alpha * np.tanh(beta * x))


@kernel("sigmoid_hard")
def sigmoid_hard(x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(alpha * x + beta, 0), 1))


@kernel("silu")
def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


@kernel("softplus")
def softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))


@kernel("softplus_parametric")
def softplus_parametric(x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(_channels(alpha, x) * softplus(_channels(beta, x) * x))


@kernel("softsign")
def softsign(x: Array) -> Array:
    return np.asarray(x / (1 + np.abs(x)))


@kernel("softmax")
def softmax(x: Array, axis: Array | int = -1) -> Array:
    exponentials = np.exp(x - x.max(axis=int(axis), keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=int(axis), keepdims=True))


@kernel("gelu")
def gelu(x: Array, mode: str = "EXACT") -> Array:
    if mode == "TANH_APPROXIMATION":
        return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x**3))))
    if mode == "SIGMOID_APPROXIMATION":
        return np.asarray(x / (1 + np.exp(-1.702 * x)))
    return np.asarray((0.5 * x * (1 + error_function(x / math.sqrt(2)))).astype(x.dtype))


# Where erf is 1 to the last bit of a float64, and how many nodes its table has for 1 of x.
_END, _DENSITY = 6.0, 512
_NODES = np.arange(int(_END * _DENSITY) + 2) / _DENSITY
_VALUES = np.array([math.erf(node) for node in _NODES])
_SLOPES = np.exp(-np.square(_NODES)) * (2 / math.sqrt(math.pi) / _DENSITY)


def error_function(x: Array) -> Array:
    """erf, in float64: cubic Hermite pieces between exact values and slopes, right to 1e-12 of the value.

    NumPy has none, and math.erf element by element takes half a minute where a network takes a second.
    """
    place = np.minimum(np.abs(x, dtype=np.float64), _END) * _DENSITY
    place = np.nan_to_num(place)
    index = place.astype(np.int32)
    t = place - index
    y0, y1, d0, d1 = _VALUES[index], _VALUES[index + 1], _SLOPES[index], _SLOPES[index + 1]
    step = y1 - y0
    result = y0 + t * (d0 + t * (3 * step - 2 * d0 - d1 + t * (d0 + d1 - 2 * step)))
    return np.asarray(np.where(np.isnan(x), np.nan, np.copysign(result, x)))


def _channels(values: Array, x: Array) -> Array:
    return values.reshape((-1,) + (1,) * (x.ndim - 2))
