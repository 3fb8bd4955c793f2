"""Pixels moved between batch, depth and space; nothing is computed."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import kernel


@kernel("depth_to_space")
def depth_to_space(x: Array, block_size: Array) -> Array:
    """The block's rows and columns are the slowest part of the depth (TensorFlow's order)."""
    b = int(block_size)
    n, c, h, w = x.shape
    blocks = x.reshape(n, b, b, c // (b * b), h, w)
    return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)


@kernel("space_to_depth")
def space_to_depth(x: Array, block_size: Array) -> Array:
    b = int(block_size)
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


@kernel("pixel_shuffle")
def pixel_shuffle(x: Array, upscale_factor: Array) -> Array:
    """The block's rows and columns are the fastest part of the depth (PyTorch's order)."""
    f = int(upscale_factor)
    n, c, h, w = x.shape
    blocks = x.reshape(n, c // (f * f), f, f, h, w)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (f * f), h * f, w * f)


@kernel("pixel_unshuffle")
def pixel_unshuffle(x: Array, downscale_factor: Array) -> Array:
    f = int(downscale_factor)
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // f, f, w // f, f)
    return blocks.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * f * f, h // f, w // f)


@kernel("space_to_batch")
def space_to_batch(x: Array, block_shape: Array, paddings: Array) -> Array:
    """The place in the block is the slowest part of the new batch (TensorFlow's order)."""
    a, b = (int(each) for each in block_shape)
    x = np.pad(x, [(0, 0), (0, 0), *((int(before), int(after)) for before, after in paddings)])
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // a, a, w // b, b)
    return blocks.transpose(3, 5, 0, 1, 2, 4).reshape(a * b * n, c, h // a, w // b)


@kernel("batch_to_space")
def batch_to_space(x: Array, block_shape: Array, crops: Array) -> Array:
    a, b = (int(each) for each in block_shape)
    n, c, h, w = x.shape
    blocks = x.reshape(a, b, n // (a * b), c, h, w)
    whole = blocks.transpose(2, 3, 4, 0, 5, 1).reshape(n // (a * b), c, h * a, w * b)
    (top, bottom), (left, right) = ((int(first), int(last)) for first, last in crops)
    return whole[:, :, top : h * a - bottom, left : w * b - right]


@kernel("crop")
def crop(x: Array, crop_height: Array, crop_width: Array) -> Array:
    (top, bottom), (left, right) = (
        tuple(int(each) for each in np.ravel(by)) for by in (crop_height, crop_width)
    )
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]
