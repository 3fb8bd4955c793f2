"""Rotary position embedding: pairs of features rotated by angles that grow with the position."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites


@rewrites("com.microsoft::RotaryEmbedding")
def rotary_embedding(node: Rewrite) -> None:
    """Rewrite as ONNX's RotaryEmbedding-23; positions are a matrix, or the offset of the first."""
    node.ignore("is_packed_batching", "scale")  # ONNX Runtime's kernel reads neither
    x, positions, cos, sin = (node.input(index) for index in range(4))
    shape, width = node.shape(x), node.shape(cos)[-1]
    heads, turned = node.attribute("num_heads", 0), node.attribute("rotary_embedding_dim", 0)
    features = shape[-1]
    if width is None or features is None:
        node.unsupported("its number of features is open; fix it with --shape NAME=...")
    if turned and not heads:
        node.unsupported("rotates part of the features of an unknown number of heads; set num_heads")
    size = features // heads if len(shape) == 3 and heads else (features if len(shape) == 4 else 2 * width)
    merged = len(shape) == 3
    if merged:  # [batch, position, heads * size] -> [batch, heads, position, size]
        x = node.op("Transpose", node.op("Reshape", x, np.array([0, 0, -1, size])), perm=[0, 2, 1, 3])
    angles = _angles(node, positions, x, cos, sin)
    x = rotate(
        node, x, *angles, size=size, turned=2 * width, interleaved=bool(node.attribute("interleaved", 0))
    )
    if merged:
        x = node.op("Reshape", node.op("Transpose", x, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    node.emit(x)


def _angles(
    node: Rewrite, positions: ir.Value, x: ir.Value, cos: ir.Value, sin: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return cos and sin as [batch, 1, position, half the features]."""
    if len(node.shape(positions)) == 1:
        length = node.op("Squeeze", node.op("Shape", x, start=2, end=3))
        numbers = node.op("Range", np.int64(0), length, np.int64(1))
        positions = node.op("Unsqueeze", node.op("Add", numbers, positions), np.array([0]))
    first, second = (
        node.op("Unsqueeze", node.op("Gather", table, positions), np.array([1])) for table in (cos, sin)
    )
    return first, second


def rotate(
    node: Rewrite, x: ir.Value, cos: ir.Value, sin: ir.Value, *, size: int, turned: int, interleaved: bool
) -> ir.Value:
    """Rotate the first `turned` of `size` features of x, [batch, heads, position, size]."""
    rest = None
    if turned < size:
        x, rest = node.op("Split", x, np.array([turned, size - turned]), outputs=2, axis=3)
    if interleaved:
        pairs = node.op("Reshape", x, np.array([0, 0, 0, -1, 2]))
        parts = node.op("Split", pairs, np.array([1, 1]), outputs=2, axis=4)
        real, imaginary = (node.op("Squeeze", part, np.array([4])) for part in parts)
    else:
        real, imaginary = node.op("Split", x, np.array([turned // 2] * 2), outputs=2, axis=3)
    new_real = node.op("Sub", node.op("Mul", cos, real), node.op("Mul", sin, imaginary))
    new_imaginary = node.op("Add", node.op("Mul", sin, real), node.op("Mul", cos, imaginary))
    if interleaved:
        both = [node.op("Unsqueeze", part, np.array([4])) for part in (new_real, new_imaginary)]
        result = node.op("Reshape", node.op("Concat", *both, axis=4), np.array([0, 0, 0, -1]))
    else:
        result = node.op("Concat", new_real, new_imaginary, axis=3)
    return result if rest is None else node.op("Concat", result, rest, axis=3)
