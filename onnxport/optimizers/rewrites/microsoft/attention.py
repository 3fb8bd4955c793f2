"""Attention and rotary position embedding of com.microsoft, as ONNX Runtime's kernels for CPUs compute them."""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, refuse, rewrites

_MASKED = -10000.0  # ONNX Runtime's default addend for scores of masked keys


@rewrites("com.microsoft::Attention")
def attention(node: Rewrite) -> None:
    """Rewrite self-attention that projects its input; the weights hold queries, keys and values side by side."""
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        node.unsupported(
            "rotates by position or writes into a shared buffer; export attention as plain operators"
        )
    node.ignore("rotary_embedding_dim")  # of do_rotary
    heads, x = node.attribute("num_heads"), node.input(0)
    total = node.shape(node.input(1))[1]
    if total is None:
        node.unsupported("the size of its weights is open")
    sizes = node.attribute("qkv_hidden_sizes") or [total // 3] * 3
    projected = node.op("MatMul", x, node.input(1))
    if node.has_input(2):
        projected = node.op("Add", projected, node.input(2))
    parts = node.op("Split", projected, np.array(sizes), outputs=3, axis=2)
    q, k, v = (_by_heads(node, part, heads, size) for part, size in zip(parts, sizes, strict=True))
    if node.has_input(4):
        past = node.op("Split", node.input(4), np.array([1, 1]), outputs=2, axis=0)
        k, v = (
            node.op("Concat", node.op("Squeeze", old, np.array([0])), new, axis=2)
            for old, new in zip(past, (k, v), strict=True)
        )
    if node.wants_output(1):
        both = [node.op("Unsqueeze", each, np.array([0])) for each in (k, v)]
        node.emit(node.op("Concat", *both, axis=0), 1)
    _attend(node, q, k, v, sizes[0] // heads, mask=3, bias=5)


@rewrites("com.microsoft::MultiHeadAttention")
def multi_head_attention(node: Rewrite) -> None:
    """Rewrite attention of projected queries, keys and values; keys and values may be split by heads."""
    heads = node.attribute("num_heads")
    q, k, v = (node.input(index) for index in range(3))
    ranks = [len(node.shape(each)) for each in (q, k, v)]
    if ranks[0] != 3 or ranks[1] != ranks[2] or ranks[1] not in (3, 4):
        node.unsupported("its queries, keys and values are packed into one tensor; export them separately")
    sizes = [node.shape(q)[2], node.shape(k)[2], node.shape(v)[2]]
    if ranks[1] == 4:
        sizes[1:] = [(node.shape(each)[3] or 0) * heads for each in (k, v)]
    if None in sizes:
        node.unsupported("its number of features is open; fix it with --shape NAME=...")
    known = [size or 0 for size in sizes]
    if node.has_input(3):
        if ranks[1] == 4:
            node.unsupported("adds a bias to keys that are split by heads")
        biases = node.op("Split", node.input(3), np.array(known), outputs=3, axis=0)
        q, k, v = (node.op("Add", each, bias) for each, bias in zip((q, k, v), biases, strict=True))
    q = _by_heads(node, q, heads, known[0])
    if ranks[1] == 3:
        k, v = (_by_heads(node, each, heads, size) for each, size in zip((k, v), known[1:], strict=True))
    if node.has_input(6):
        k, v = node.op("Concat", node.input(6), k, axis=2), node.op("Concat", node.input(7), v, axis=2)
    for index, each in ((1, k), (2, v)):
        if node.wants_output(index):
            node.emit(each, index)
    _attend(node, q, k, v, known[0] // heads, mask=4, bias=5)


refuse(
    "com.microsoft::GroupQueryAttention",
    "writes into its cache at run-time positions; export attention as plain operators",
)


def _by_heads(node: Rewrite, x: ir.Value, heads: int, size: int) -> ir.Value:
    """Reshape [batch, position, features] to [batch, head, position, features of a head]."""
    split = node.op("Reshape", x, np.array([0, 0, heads, size // heads]))
    return node.op("Transpose", split, perm=[0, 2, 1, 3])


def _attend(node: Rewrite, q: ir.Value, k: ir.Value, v: ir.Value, size: int, *, mask: int, bias: int) -> None:
    """Compute softmax(q * k' * scale + masks) * v and join the heads."""
    scale = node.attribute("scale", 0.0) or 1 / sqrt(size)
    dtype = node.dtype(node.input(0))
    scores = node.op("MatMul", q, node.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = node.op("Mul", scores, np.asarray(scale, dtype))
    addends = [_mask(node, mask, k)] if node.has_input(mask) else []
    node.ignore("mask_filter_value")  # of no use without a mask
    if node.attribute("unidirectional", 0):
        addends.append(_later(node, q, k))
    for addend in addends:
        if dtype != np.float32:
            addend = node.op("Cast", addend, to=ir.DataType.from_numpy(dtype))
        scores = node.op("Add", scores, addend)
    if node.has_input(bias):
        scores = node.op("Add", scores, node.input(bias))
    mixed = node.op("MatMul", node.op("Softmax", scores, axis=-1), v)
    node.emit(node.op("Reshape", node.op("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([0, 0, -1])), 0)


def _mask(node: Rewrite, index: int, k: ir.Value) -> ir.Value:
    """Return the addend of the scores: 0 for keys that the mask passes."""
    mask, rank = node.input(index), len(node.shape(node.input(index)))
    if rank == 1:
        batch, length = node.input(0).shape, mask.shape
        if batch is None or length is None or batch[0] != length[0]:
            node.unsupported("its mask is a vector, but not known to hold one length per batch row")
        lengths = node.op("Unsqueeze", mask, np.array([1]))
        open_ = node.op("Less", _positions(node, k), lengths)
    elif rank in (2, 3):
        open_ = node.op("Greater", mask, np.int32(0))
    else:
        node.unsupported(f"its mask has {rank} axes; only masks for keys and for pairs are supported")
    value = node.attribute("mask_filter_value", _MASKED)
    addend = node.op("Where", open_, np.float32(0), np.float32(value))
    return node.op("Unsqueeze", addend, np.array([1] if rank == 3 else [1, 2]))


def _later(node: Rewrite, q: ir.Value, k: ir.Value) -> ir.Value:
    """Return the lowest number for keys behind the query; the last query aligns with the last key."""
    queries, keys = _count_positions(node, q), _count_positions(node, k)
    rows = node.op("Range", node.op("Sub", keys, queries), keys, np.int32(1))
    is_later = node.op("Greater", _positions(node, k), node.op("Unsqueeze", rows, np.array([1])))
    return node.op("Where", is_later, np.finfo(np.float32).min, np.float32(0))


def _count_positions(node: Rewrite, x: ir.Value) -> ir.Value:
    return node.op("Squeeze", node.op("Cast", node.op("Shape", x, start=2, end=3), to=ir.DataType.INT32))


def _positions(node: Rewrite, k: ir.Value) -> ir.Value:
    """Return 0, 1, 2, ... for the keys, [1, keys]."""
    numbers = node.op("Range", np.int32(0), _count_positions(node, k), np.int32(1))
    return node.op("Unsqueeze", numbers, np.array([0]))


# ---- rotary position embedding: pairs of features rotated by angles that grow with the position


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
    if len(node.shape(positions)) == 1:
        length = node.op("Squeeze", node.op("Shape", x, start=2, end=3))
        numbers = node.op("Range", np.int64(0), length, np.int64(1))
        positions = node.op("Unsqueeze", node.op("Add", numbers, positions), np.array([0]))
    # Both as [batch, 1, position, half the features].
    cos, sin = (
        node.op("Unsqueeze", node.op("Gather", each, positions), np.array([1])) for each in (cos, sin)
    )
    interleaved = bool(node.attribute("interleaved", 0))
    x = _rotate(node, x, cos, sin, size=size, turned=2 * width, interleaved=interleaved)
    if merged:
        x = node.op("Reshape", node.op("Transpose", x, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    node.emit(x)


def _rotate(
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
