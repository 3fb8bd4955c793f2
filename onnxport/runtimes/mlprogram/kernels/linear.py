"""Matrix products, summed in float32, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.activation import softmax
from onnxport.runtimes.mlprogram.kernels.registry import Flag, kernel


@kernel("matmul")
def matmul(x: Array, y: Array, transpose_x: Flag = False, transpose_y: Flag = False) -> Array:
    left = np.swapaxes(x, -1, -2) if transpose_x and x.ndim > 1 else x
    right = np.swapaxes(y, -1, -2) if transpose_y and y.ndim > 1 else y
    return np.asarray(np.matmul(left, right))


@kernel("linear")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = np.matmul(x, weight.T)
    return np.asarray(product if bias is None else product + bias)


@kernel("einsum")
def einsum(values: Sequence[Array], equation: str) -> Array:
    """Sum over one operand's last axis and the other's third from the end; only such equations are documented."""
    terms, _, result = equation.replace(" ", "").partition("->")
    left, right = terms.split(",")
    summed = left[-1]
    documented = (
        len(left) in (3, 4)
        and right == left[:-3] + summed + left[-2] + right[-1]
        and result == left[:-1] + right[-1]
    )
    if not documented:
        raise ValueError(f"the equation {equation!r}")
    # Every other axis is a batch axis: both become [.., H, rows, columns], which broadcasts as documented.
    product = np.matmul(np.swapaxes(values[0], -3, -2), np.swapaxes(values[1], -3, -2))
    return np.swapaxes(product, -3, -2)


@kernel("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None
) -> Array:
    """Return softmax(query @ key^T / sqrt(E) + mask) @ value; a boolean mask selects keys."""
    scores = np.matmul(query, np.swapaxes(key, -2, -1)) / np.float32(math.sqrt(query.shape[-1]))
    if attn_mask is not None:
        if attn_mask.dtype == bool:
            attn_mask = np.where(attn_mask, np.float32(0), np.float32(-np.inf))
        scores = scores + attn_mask
    return np.asarray(np.matmul(softmax(scores), value))
