"""Fourier transforms as products with matrices of cosines and sines: DFT, STFT."""

from __future__ import annotations

from math import pi

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites
from onnxport.optimizers.rewrites.sizes import arange, divide, integers, size_of, slice_axis

_FLOAT, _INT32, _INT64 = (kind.value for kind in (ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64))


@rewrites("DFT")
def fourier_transform(node: Rewrite) -> None:
    """Transform one axis of [..., 1 or 2], real or with imaginary parts (ONNX DFT-20)."""
    x, given = node.input(0), node.optional(1)
    sizes = node.shape(x)
    axis = int(node.constant(2, "its axis").item()) if node.has_input(2) else -2
    inverse, one_sided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    if inverse and one_sided:
        node.unsupported("is both inverse and one-sided")
    place, last = axis % len(sizes), len(sizes) - 2
    swap = list(range(last + 1))
    swap[place], swap[last] = last, place
    own = size_of(node, x, place)
    length = own if given is None else _one(node, given)
    used = node.op("Min", own, length)
    parts = []
    for part in _parts(node, x, axis=-1):
        signal = part if place == last else node.op("Transpose", part, perm=swap)
        parts.append(slice_axis(node, signal, integers(0), used, -1))
    pair = _transform(node, parts, used, length, one_sided=one_sided, inverse=inverse)
    if place != last:
        pair = [node.op("Transpose", each, perm=swap) for each in pair]
    _emit_pair(node, pair)


@rewrites("STFT")
def short_time_fourier_transform(node: Rewrite) -> None:
    """Transform windowed frames of a signal [N, L, 1 or 2] (ONNX STFT-17)."""
    signal, step, window, frame = node.input(0), _one(node, node.input(1)), node.optional(2), node.optional(3)
    if frame is not None:
        length = _one(node, frame)
    elif window is not None:
        length = size_of(node, window, 0)
    else:
        node.unsupported("has neither a window nor a frame_length")
    span = node.op("Sub", size_of(node, signal, 1), length)
    frames = node.op("Add", divide(node, span, step), integers(1))
    starts = node.op("Unsqueeze", node.op("Mul", arange(node, frames), step), integers(1))
    places = node.op("Add", starts, node.op("Unsqueeze", arange(node, length), integers(0)))
    rows = _parts(node, signal, axis=2) if len(node.shape(signal)) == 3 else [signal]
    parts = [node.op("Gather", row, places, axis=1) for row in rows]
    if window is not None:
        parts = [node.op("Mul", part, window) for part in parts]
    one_sided = bool(node.attribute("onesided", 1))
    _emit_pair(node, _transform(node, parts, length, length, one_sided=one_sided))


def _one(node: Rewrite, size: ir.Value) -> ir.Value:
    """Return a size as a vector of one int64."""
    return node.op("Cast", node.op("Reshape", size, integers(1)), to=_INT64)


def _parts(node: Rewrite, signal: ir.Value, *, axis: int) -> list[ir.Value]:
    """Return the real part, and the imaginary one if there is one."""
    count = node.shape(signal)[-1]
    if node.dtype(signal) != np.float32:
        node.unsupported(f"of {node.dtype(signal)}; only float32 is rewritten")
    if count is None:
        node.unsupported(
            "has a last axis of open size, which decides about imaginary parts; fix it with --shape NAME=..."
        )
    return [node.op("Gather", signal, np.array(part), axis=axis) for part in range(count)]


def _transform(
    node: Rewrite,
    parts: list[ir.Value],
    used: ir.Value,
    length: ir.Value,
    *,
    one_sided: bool,
    inverse: bool = False,
) -> list[ir.Value]:
    """Return real and imaginary part of the transform of parts [..., used]."""
    bins = length
    if one_sided:
        bins = node.op("Add", divide(node, length, integers(2)), integers(1))
    cosine, sine = _waves(node, used, bins, length)
    real, imaginary = node.op("MatMul", parts[0], cosine), node.op("MatMul", parts[0], sine)
    if not inverse:
        imaginary = node.op("Neg", imaginary)
    if len(parts) == 2:
        crossed, straight = node.op("MatMul", parts[1], sine), node.op("MatMul", parts[1], cosine)
        real = node.op("Sub" if inverse else "Add", real, crossed)
        imaginary = node.op("Add", imaginary, straight)
    if inverse:
        size = node.op("Cast", length, to=_FLOAT)
        real, imaginary = node.op("Div", real, size), node.op("Div", imaginary, size)
    return [real, imaginary]


def _waves(node: Rewrite, used: ir.Value, bins: ir.Value, length: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return cosine and sine of 2 pi n k / length as [used, bins].

    Angles are integers, in quarters of 1 / length turns, reduced to the first quadrant: zeros become exactly 0, and
    float32 would lose the angle of a large product.
    """
    rows, columns = (node.op("Cast", arange(node, limit), to=_INT32) for limit in (used, bins))
    rows, columns = node.op("Unsqueeze", rows, integers(1)), node.op("Unsqueeze", columns, integers(0))
    product = node.op("Mul", rows, columns)
    right_angle = node.op("Cast", length, to=_INT32)
    whole, half = (node.op("Mul", right_angle, np.array(turns, np.int32)) for turns in (4, 2))
    angle = node.op("Mul", node.op("Mod", product, right_angle), np.array(4, np.int32))
    is_lower = node.op("Greater", angle, half)
    angle = node.op("Where", is_lower, node.op("Sub", whole, angle), angle)
    is_left = node.op("Greater", angle, right_angle)
    angle = node.op("Where", is_left, node.op("Sub", half, angle), angle)

    def sine_of(angle: ir.Value) -> ir.Value:
        parts = node.op("Div", node.op("Cast", angle, to=_FLOAT), node.op("Cast", right_angle, to=_FLOAT))
        return node.op("Sin", node.op("Mul", parts, np.array(pi / 2, np.float32)))

    sine, cosine = sine_of(angle), sine_of(node.op("Sub", right_angle, angle))
    cosine = node.op("Where", is_left, node.op("Neg", cosine), cosine)
    return cosine, node.op("Where", is_lower, node.op("Neg", sine), sine)


def _emit_pair(node: Rewrite, pair: list[ir.Value]) -> None:
    parts = [node.op("Unsqueeze", each, integers(-1)) for each in pair]
    node.emit(node.op("Concat", *parts, axis=-1))
