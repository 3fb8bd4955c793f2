"""Activations and softmax."""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.elementwise_unary import erf
from onnxport.runtimes.mlprogram.kernels.normalization import per_channel
from onnxport.runtimes.mlprogram.kernels.registry import Int, kernel, register


@kernel("softplus")
def softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))


@kernel("softmax")
def softmax(x: Array, axis: Int = -1) -> Array:
    exponentials = np.exp(x - x.max(axis=int(axis), keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=int(axis), keepdims=True))


@kernel("gelu")
def gelu(x: Array, mode: str = "EXACT") -> Array:
    if mode == "TANH_APPROXIMATION":
        return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x**3))))
    if mode == "SIGMOID_APPROXIMATION":
        return np.asarray(x / (1 + np.exp(-1.702 * x)))
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


register(
    {
        "clamped_relu": lambda x, alpha, beta: np.minimum(np.where(x >= 0, x, alpha * x), beta),
        "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
        "leaky_relu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
        "linear_activation": lambda x, alpha, beta: x * alpha + beta,
        "prelu": lambda x, alpha: np.where(x > 0, x, per_channel(alpha, x) * x),
        "relu": lambda x: np.maximum(x, 0),
        "relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
        "scaled_tanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "sigmoid_hard": lambda x, alpha, beta: np.minimum(np.maximum(alpha * x + beta, 0), 1),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "softplus_parametric": lambda x, alpha, beta: (
            per_channel(alpha, x) * softplus(per_channel(beta, x) * x)
        ),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "thresholded_relu": lambda x, alpha: np.where(x >= alpha, x, np.zeros((), x.dtype)),
    }
)
