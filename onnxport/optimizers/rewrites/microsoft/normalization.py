"""Layer normalization as ONNX Runtime's optimizer writes it: of a sum, by root mean square, of embeddings."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites

_EPSILON = 1e-12


@rewrites("SimplifiedLayerNormalization", "com.microsoft::SimplifiedLayerNormalization")
def simplified_layer_normalization(node: Rewrite) -> None:
    """Compute x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on (ONNX's RMSNormalization-23)."""
    node.ignore("stash_type")  # it is computed in float32
    x = node.input(0)
    rank = len(node.shape(x))
    axis = node.attribute("axis", -1) % rank
    axes, epsilon = list(range(axis, rank)), node.attribute("epsilon", 1e-5)
    for index, result in enumerate(_by_root_mean_square(node, x, node.input(1), epsilon, axes)):
        node.emit(result, index)


@rewrites("com.microsoft::SkipLayerNormalization")
def skip_layer_normalization(node: Rewrite) -> None:
    """Compute LayerNormalization of input + skip + bias."""
    total = _sum(node, 0, 1, 4)
    epsilon = node.attribute("epsilon", _EPSILON)
    normal = node.op("LayerNormalization", total, node.input(2), node.optional(3), axis=-1, epsilon=epsilon)
    node.emit(normal, 0)
    node.emit(total, 3)


@rewrites("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(node: Rewrite) -> None:
    """Compute SimplifiedLayerNormalization of input + skip + bias."""
    total = _sum(node, 0, 1, 3)
    rank = len(node.shape(node.input(0)))
    epsilon = node.attribute("epsilon", _EPSILON)
    node.emit(_by_root_mean_square(node, total, node.input(2), epsilon, [rank - 1])[0], 0)
    node.emit(total, 3)


@rewrites("com.microsoft::EmbedLayerNormalization")
def embed_layer_normalization(node: Rewrite) -> None:
    """Normalize the sum of word, position and segment embeddings; count each row's tokens."""
    node.ignore("mask_index_type")
    tokens = node.input(0)
    total = node.op("Gather", node.input(2), tokens)
    if node.has_input(8):
        positions = node.input(8)
    else:
        length = node.op("Squeeze", node.op("Shape", tokens, start=1, end=2))
        positions = node.op("Range", np.int64(0), length, np.int64(1))
    total = node.op("Add", total, node.op("Gather", node.input(3), positions))
    if node.has_input(1):
        total = node.op("Add", total, node.op("Gather", node.input(4), node.input(1)))
    else:
        node.optional(4)
    epsilon = node.attribute("epsilon", _EPSILON)
    node.emit(node.op("LayerNormalization", total, node.input(5), node.input(6), axis=-1, epsilon=epsilon), 0)
    mask = node.optional(7)
    if node.wants_output(1):
        counted = node.op("Mul", tokens, np.int32(0)) if mask is None else mask
        node.emit(node.op("ReduceSum", counted, np.array([1]), keepdims=0), 1)
    if node.wants_output(2):
        node.emit(total, 2)


def _sum(node: Rewrite, *inputs: int) -> ir.Value:
    first, *others = (node.input(index) for index in inputs if node.has_input(index))
    for other in others:
        first = node.op("Add", first, other)
    return first


def _by_root_mean_square(
    node: Rewrite, x: ir.Value, scale: ir.Value, epsilon: float, axes: list[int]
) -> tuple[ir.Value, ir.Value]:
    """Return x over its root mean square, times the scale; and the factor of x."""
    dtype = node.dtype(node.input(0))
    wide = x if dtype == np.float32 else node.op("Cast", x, to=ir.DataType.FLOAT)
    mean = node.op("ReduceMean", node.op("Mul", wide, wide), np.array(axes))
    root = node.op("Sqrt", node.op("Add", mean, np.float32(epsilon)))
    normal = node.op("Div", wide, root)
    if dtype != np.float32:
        normal = node.op("Cast", normal, to=ir.DataType.from_numpy(dtype))
    return node.op("Mul", normal, scale), node.op("Div", np.float32(1), root)
