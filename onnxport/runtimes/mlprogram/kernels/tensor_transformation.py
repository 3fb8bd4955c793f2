"""The same numbers in another shape or order: reshapes, joins, slices, padding, blocks moved between axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Float, Int, kernel, register


@kernel("reshape")
def reshape(x: Array, shape: Array, call: Call) -> Array:
    wanted = _integers(shape)
    if 0 in wanted and not call.at_least(7) and len(wanted) != x.ndim:
        raise ValueError(f"a 0 in the shape {list(wanted)} for an input of rank {x.ndim}")
    # From iOS17 a 0 stands for the size of the dimension at the same distance from the end; 1 where there is none.
    sizes = [1] * max(0, len(wanted) - x.ndim) + list(x.shape)
    sizes = sizes[len(sizes) - len(wanted) :]
    return x.reshape([size or given for size, given in zip(wanted, sizes, strict=True)])


@kernel("reshape_like")
def reshape_like(
    x: Array,
    ref_tensors: Sequence[Array],
    begins: Sequence[Array],
    ends: Sequence[Array],
    end_masks: Sequence[Array],
) -> Array:
    shape: list[int] = []
    for reference, begin, end, mask in zip(ref_tensors, begins, ends, end_masks, strict=True):
        shape += reference.shape[int(begin) : None if mask else int(end)]
    return x.reshape(shape)


@kernel("flatten2d")
def flatten2d(x: Array, axis: Int = 1) -> Array:
    cut = int(axis)
    return x.reshape(math.prod(x.shape[:cut]), math.prod(x.shape[cut:]))


@kernel("squeeze")
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Drop axes of size 1; the others stay."""
    chosen = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes.reshape(-1)]
    return np.squeeze(x, tuple(axis for axis in chosen if x.shape[axis] == 1))


@kernel("concat")
def concat(values: Sequence[Array], axis: Array, interleave: Flag = False) -> Array:
    if values[0].ndim == 0:
        return np.stack(values)
    if not interleave:
        return np.concatenate(values, axis=int(axis))
    place = int(axis) % values[0].ndim
    shape = list(values[0].shape)
    shape[place] *= len(values)
    return np.stack(values, axis=place + 1).reshape(shape)


@kernel("split")
def split(
    x: Array, axis: Array, num_splits: Array | None = None, split_sizes: Array | None = None
) -> tuple[Array, ...]:
    if split_sizes is None:
        assert num_splits is not None
        return tuple(np.split(x, int(num_splits), axis=int(axis)))
    if int(split_sizes.sum()) != x.shape[int(axis)]:
        raise ValueError(f"sizes {split_sizes.tolist()} of {x.shape[int(axis)]}")
    return tuple(np.split(x, np.cumsum(split_sizes)[:-1], axis=int(axis)))


def _integers(values: Array) -> tuple[int, ...]:
    return tuple(int(each) for each in np.ravel(values))


register(
    {
        "expand_dims": lambda x, axes: np.expand_dims(x, _integers(axes)),
        "reverse": lambda x, axes=None: np.flip(x, None if axes is None else _integers(axes)),
        "stack": lambda values, axis: np.stack(values, axis=int(axis)),
        "tile": lambda x, reps: np.tile(x, _integers(reps)),
        "transpose": lambda x, perm: np.transpose(x, _integers(perm)),
    }
)


@kernel("reverse_sequence")
def reverse_sequence(x: Array, lengths: Array, call: Call, seq_axis: Int = 0, batch_axis: Int = 0) -> Array:
    moved = np.moveaxis(x, (int(batch_axis), int(seq_axis)), (0, 1))
    if call.strict and ((lengths < 0) | (lengths > moved.shape[1])).any():
        call.undefined(f"lengths {lengths.tolist()} of sequences of {moved.shape[1]}")
    turned = moved.copy()
    for row, length in enumerate(lengths.reshape(-1).tolist()):
        turned[row, :length] = moved[row, :length][::-1]
    return np.moveaxis(turned, (0, 1), (int(batch_axis), int(seq_axis)))


@kernel("sliding_windows")
def sliding_windows(x: Array, axis: Array, size: Array, stride: Int = 1) -> Array:
    place = int(axis) % x.ndim
    windows = np.moveaxis(np.lib.stride_tricks.sliding_window_view(x, int(size), place), -1, place + 1)
    return np.ascontiguousarray(windows[(slice(None),) * place + (slice(None, None, int(stride)),)])


@kernel("band_part")
def band_part(x: Array, lower: Int = -1, upper: Int = -1) -> Array:
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    below, above = int(lower), int(upper)
    band = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return np.where(band, x, np.zeros((), x.dtype))


@kernel("depth_to_space")
def depth_to_space(x: Array, block_size: Array) -> Array:
    """Move the depth's slowest part to the block's rows and columns (TensorFlow's order)."""
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
    """Move the depth's fastest part to the block's rows and columns (PyTorch's order)."""
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
    """Move the position in the block to the slowest part of the batch (TensorFlow's order)."""
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
    y = blocks.transpose(2, 3, 4, 0, 5, 1).reshape(n // (a * b), c, h * a, w * b)
    (top, bottom), (left, right) = ((int(first), int(last)) for first, last in crops)
    return y[:, :, top : h * a - bottom, left : w * b - right]


@kernel("crop")
def crop(x: Array, crop_height: Array, crop_width: Array) -> Array:
    (top, bottom), (left, right) = _integers(crop_height), _integers(crop_width)
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]


def _ranges(
    x: Array,
    call: Call,
    begin: Array,
    end: Array,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> tuple[slice | int, ...]:
    """Return NumPy's index for the operands of slice_by_index; a masked end is open in the stride's direction."""

    def is_masked(mask: Array | None, axis: int) -> bool:
        return mask is not None and bool(mask.reshape(-1)[axis])

    ranges: list[slice | int] = []
    for axis, size in enumerate(x.shape):
        step = 1 if stride is None else int(stride.reshape(-1)[axis])
        first = None if is_masked(begin_mask, axis) else int(begin.reshape(-1)[axis])
        if is_masked(squeeze_mask, axis):
            at = first or 0
            if not -size <= at < size:
                call.undefined(f"element {at} of an axis of {size}")
            ranges.append(min(max(at, -size), size - 1))
            continue
        if not step:
            raise ValueError(f"stride 0 on axis {axis}")
        ranges.append(slice(first, None if is_masked(end_mask, axis) else int(end.reshape(-1)[axis]), step))
    return tuple(ranges)


@kernel("slice_by_index")
def slice_by_index(x: Array, call: Call, **ranges: Array) -> Array:
    return np.asarray(x[_ranges(x, call, **ranges)])


@kernel("slice_update")
def slice_update(x: Array, update: Array, call: Call, **ranges: Array) -> Array:
    place = _ranges(x, call, **ranges)
    changed = x.copy()
    if changed[place].shape != update.shape:
        raise ValueError(f"an update of shape {update.shape} for a slice of {changed[place].shape}")
    changed[place] = update
    return changed


@kernel("slice_by_size")
def slice_by_size(x: Array, begin: Array, size: Array, call: Call) -> Array:
    ranges = []
    for length, first, wanted in zip(
        x.shape, begin.reshape(-1).tolist(), size.reshape(-1).tolist(), strict=True
    ):
        start = first + length if first < 0 else first
        stop = length if wanted == -1 else start + wanted
        if not 0 <= start <= stop <= length:
            call.undefined(f"{wanted} elements from {first} on of an axis of {length}")
        ranges.append(slice(max(start, 0), stop))
    return x[tuple(ranges)]


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@kernel("pad")
def pad(x: Array, pad: Array, call: Call, mode: str = "constant", constant_val: Float = 0.0) -> Array:
    """Pad the last axes, one pair of `pad` each."""
    pairs = pad.reshape(-1, 2).tolist()
    widths = [[0, 0]] * (x.ndim - len(pairs)) + pairs
    if (pad < 0).any():
        raise ValueError(f"negative padding {pad.tolist()}")
    if mode == "constant":
        return np.pad(x, widths, constant_values=np.asarray(constant_val, x.dtype))
    border = 1 if mode == "reflect" else 0
    if any(max(pair) > max(size - border, 0) for pair, size in zip(widths, x.shape, strict=True)):
        call.undefined(f"{mode} of {pad.tolist()} around {x.shape}, which is larger than the tensor")
    return np.pad(x, widths, mode=_MODES[mode])  # type: ignore[call-overload, no-any-return]
