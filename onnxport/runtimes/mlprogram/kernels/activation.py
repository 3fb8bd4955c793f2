"""Activations and softmax."""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.erf import erf
from onnxport.runtimes.mlprogram.kernels.normalization import per_channel
from onnxport.runtimes.mlprogram.kernels.registry import kernel


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
    return np.where(x > 0, x, per_channel(alpha, x) * x)


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
    return np.asarray(per_channel(alpha, x) * softplus(per_channel(beta, x) * x))


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
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))
