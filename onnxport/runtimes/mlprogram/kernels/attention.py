"""Attention in one operator (iOS18)."""

from __future__ import annotations

import math

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.activation import softmax
from onnxport.runtimes.mlprogram.registry import kernel


@kernel("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Array | None = None
) -> Array:
    """softmax(query @ key^T / sqrt(E) + mask) @ value; a mask of booleans says who takes part."""
    scores = np.matmul(query, np.swapaxes(key, -2, -1)) / np.float32(math.sqrt(query.shape[-1]))
    if attn_mask is not None:
        mask = (
            np.where(attn_mask, np.float32(0), np.float32(-np.inf)) if attn_mask.dtype == bool else attn_mask
        )
        scores = scores + mask
    return np.asarray(np.matmul(softmax(scores), value))
