"""Normalizations over the channels, the positions, or given axes."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Float, Undefined, kernel


@kernel("batch_norm")
def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Float = 1e-5,
) -> Array:
    scale = 1 / np.sqrt(variance + epsilon)
    y = (x - per_channel(mean, x)) * per_channel(scale if gamma is None else gamma * scale, x)
    return np.asarray(y if beta is None else y + per_channel(beta, x))


@kernel("instance_norm")
def instance_norm(
    x: Array, gamma: Array | None = None, beta: Array | None = None, epsilon: Float = 1e-5
) -> Array:
    y = _standardize(x, tuple(range(2, x.ndim)), epsilon)
    y = y if gamma is None else y * per_channel(gamma, x)
    return y if beta is None else np.asarray(y + per_channel(beta, x))


@kernel("layer_norm")
def layer_norm(
    x: Array,
    axes: Array | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Float = 1e-5,
) -> Array:
    over = sorted(range(x.ndim) if axes is None else {int(axis) % x.ndim for axis in np.ravel(axes)})
    shape = [size if axis in over else 1 for axis, size in enumerate(x.shape)]
    y = _standardize(x, tuple(over), epsilon)
    y = y if gamma is None else y * gamma.reshape(shape)
    return y if beta is None else np.asarray(y + beta.reshape(shape))


@kernel("l2_norm")
def l2_norm(x: Array, epsilon: Float = 1e-6) -> Array:
    """Divide by the norm over the last three dimensions."""
    squares = np.square(x).sum(axis=(-3, -2, -1), keepdims=True)
    return np.asarray(x / np.sqrt(squares + epsilon))


@kernel("local_response_norm")
def local_response_norm(
    x: Array, size: Array, call: Call, alpha: Float = 1e-4, beta: Float = 0.75, k: Float = 1
) -> Array:
    width = int(size)
    if call.strict and width % 2 == 0:
        raise Undefined(
            f"local_response_norm over {width} channels: the neighbours of an even number are not documented"
        )
    before = (width - 1) // 2
    squares = np.square(x)
    sums = np.zeros_like(squares)
    channels = x.shape[1]
    for shift in range(-before, width - before):
        low, high = max(0, -shift), min(channels, channels - shift)
        if low < high:
            sums[:, low:high] += squares[:, low + shift : high + shift]
    return np.asarray(x / np.power(k + alpha / width * sums, beta))


def _standardize(x: Array, axes: tuple[int, ...], epsilon: Float) -> Array:
    centered = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centered).mean(axis=axes, keepdims=True)
    return np.asarray(centered / np.sqrt(variance + epsilon))


def per_channel(values: Array, x: Array) -> Array:
    """Return a vector of one number per channel, ready to broadcast over `x`."""
    return values.reshape((-1,) + (1,) * (x.ndim - 2))
