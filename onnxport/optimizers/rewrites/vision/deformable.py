"""DeformConv: samples at offset positions, and a matrix product."""

from __future__ import annotations

import numpy as np

from onnxport.optimizers.rewrites.terms import Draft, Term, formula
from onnxport.optimizers.rewrites.vision.sampling import Tap, clamp, sample


@formula("DeformConv")
def deform_conv(draft: Draft) -> list[Term]:
    """Compute deformable 2-D convolution with optional masks (ONNX DeformConv-22)."""
    x, weights, offset = (draft.input(index) for index in range(3))
    bias, mask = draft.optional(3), draft.optional(4)
    if x.rank != 4:
        draft.unsupported(f"an input of rank {x.rank}; ONNX Runtime deforms over images only")
    if None in weights.shape or x.shape[1] is None:
        draft.unsupported("weights or channels of an open size")
    draft.ignore("kernel_shape")  # the weights have it
    outer, inner, *kernel = (dim or 0 for dim in weights.shape)
    channels, taps = x.shape[1], kernel[0] * kernel[1]
    groups, offset_groups = draft.attribute("group", 1), draft.attribute("offset_group", 1)
    own = channels // offset_groups
    parts = []
    for group in range(offset_groups):
        part = x.cut(1, group * own, (group + 1) * own) if offset_groups > 1 else x
        # [images, high, wide, taps, channels of the group]
        parts.append(_columns(draft, x, rows(part, own), offset, mask, group, kernel))
    columns = parts[0] if len(parts) == 1 else draft.op("Concat", *parts, axis=4)
    filters = weights.cast(np.float32).reshape(groups, outer // groups, inner, taps).transpose(0, 3, 2, 1)
    results = []
    for group in range(groups):
        own_columns = columns.cut(4, group * inner, (group + 1) * inner) if groups > 1 else columns
        flat = own_columns.reshape(0, 0, 0, taps * inner)
        results.append(flat.call("MatMul", filters.gather(group).reshape(taps * inner, outer // groups)))
    result = results[0] if len(results) == 1 else draft.op("Concat", *results, axis=3)
    if bias is not None:
        result = result + bias.cast(np.float32)
    return [result.transpose(0, 3, 1, 2).cast(x.dtype)]


def rows(part: Term, channels: int) -> Term:
    """Return rows of channels as rows_of, for a part of a feature map without inferred shape."""
    return part.cast(np.float32).transpose(0, 2, 3, 1).reshape(-1, channels)


def _columns(
    draft: Draft, x: Term, pixels: Term, offset: Term, mask: Term | None, group: int, kernel: list[int]
) -> Term:
    high, wide = kernel
    taps = high * wide
    strides, dilations = (draft.attribute(name, (1, 1)) for name in ("strides", "dilations"))
    pads = draft.attribute("pads", (0, 0, 0, 0))
    within = np.stack([each.reshape(-1) for each in np.indices((high, wide))]).astype(np.float32)
    moved = offset.cast(np.float32).cut(1, group * 2 * taps, (group + 1) * 2 * taps).transpose(0, 2, 3, 1)
    sizes = [x.size(2), x.size(3)]
    axes = []
    for axis, size in enumerate(sizes):
        along = [1, -1, 1, 1] if axis == 0 else [1, 1, -1, 1]
        first = draft.range(offset.size(2 + axis), np.float32).reshape(*along) * float(strides[axis])
        regular = first + (within[axis] * dilations[axis] - pads[axis]).reshape(1, 1, 1, taps)
        # Offsets alternate between y and x from tap to tap.
        own = moved.gather(np.arange(taps) * 2 + axis, axis=3)
        axes.append(_neighbours(draft, regular + own, size))
    image = draft.range(x.size(0)).reshape(-1, 1, 1, 1)
    found = sample(draft, pixels, image, sizes, axes)
    if mask is None:
        return found
    share = mask.cast(np.float32).cut(1, group * taps, (group + 1) * taps).transpose(0, 2, 3, 1)
    return found * share.unsqueeze(-1)


def _neighbours(draft: Draft, position: Term, size: int | Term) -> list[Tap]:
    """Return both neighbours of a position; those outside the axis have weight 0."""
    last = draft.number(size) - 1.0
    lower = position.call("Floor")
    share = position - lower
    return [
        Tap(clamp(each, last), weight * ((each >= 0.0) & (each <= last)).cast(np.float32))
        for each, weight in ((lower, 1.0 - share), (lower + 1.0, share))
    ]
