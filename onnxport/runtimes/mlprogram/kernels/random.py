"""Random numbers. Core ML does not document its generators, so results cannot be compared, even with a seed."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Float, Int, Undefined, kernel


@kernel("random_bernoulli")
def random_bernoulli(shape: Array, prob: Float = 0.5, seed: Int = -1) -> Array:
    return (_generator(seed).random(_sizes(shape)) < prob).astype(np.float32)


@kernel("random_normal")
def random_normal(shape: Array, mean: Float = 0.0, stddev: Float = 1.0, seed: Int = -1) -> Array:
    return np.asarray(mean + stddev * _generator(seed).standard_normal(_sizes(shape), np.float32))


@kernel("random_uniform")
def random_uniform(shape: Array, call: Call, low: Float = 0.0, high: Float = 1.0, seed: Int = -1) -> Array:
    if call.strict and high < low:
        raise Undefined(f"random_uniform from {float(low)} to less, {float(high)}")
    return np.asarray(low + (high - low) * _generator(seed).random(_sizes(shape), np.float32))


@kernel("random_categorical")
def random_categorical(x: Array, mode: str = "logits", size: Int = 1, seed: Int = -1) -> Array:
    """Draw by the Gumbel-max trick: the index of the largest logit after Gumbel noise."""
    logits = np.log(x) if mode == "probs" else x
    noise = _generator(seed).gumbel(size=(*x.shape[:-1], int(size), x.shape[-1]))
    return np.asarray((logits[..., None, :] + noise).argmax(axis=-1).astype(np.float32))


def _generator(seed: Int) -> np.random.Generator:
    return np.random.default_rng(None if int(seed) < 0 else int(seed))


def _sizes(shape: Array) -> tuple[int, ...]:
    return tuple(int(each) for each in shape)
