"""The same numbers in another shape or order, joined or taken apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel


@kernel("reshape")
def reshape(x: Array, shape: Array, call: Call) -> Array:
    wanted = [int(size) for size in shape.reshape(-1)]
    if 0 in wanted and not call.at_least(7) and len(wanted) != x.ndim:
        raise ValueError(f"a 0 in the shape {wanted} for an input of rank {x.ndim}")
    # From iOS17 on a 0 is the size of the dimension that is as far from the end; of none, 1.
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
def flatten2d(x: Array, axis: Array | int = 1) -> Array:
    cut = int(axis)
    return x.reshape(math.prod(x.shape[:cut]), math.prod(x.shape[cut:]))


@kernel("expand_dims")
def expand_dims(x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(axis) for axis in axes.reshape(-1)))


@kernel("squeeze")
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Axes of another size than 1 are left as they are."""
    chosen = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes.reshape(-1)]
    return np.squeeze(x, tuple(axis for axis in chosen if x.shape[axis] == 1))


@kernel("transpose")
def transpose(x: Array, perm: Array) -> Array:
    return np.transpose(x, [int(axis) for axis in perm.reshape(-1)])


@kernel("concat")
def concat(values: Sequence[Array], axis: Array, interleave: Array | bool = False) -> Array:
    if values[0].ndim == 0:
        return np.stack(values)
    if not interleave:
        return np.concatenate(values, axis=int(axis))
    place = int(axis) % values[0].ndim
    shape = list(values[0].shape)
    shape[place] *= len(values)
    return np.stack(values, axis=place + 1).reshape(shape)


@kernel("stack")
def stack(values: Sequence[Array], axis: Array) -> Array:
    return np.stack(values, axis=int(axis))


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


@kernel("tile")
def tile(x: Array, reps: Array) -> Array:
    return np.tile(x, [int(times) for times in reps.reshape(-1)])


@kernel("reverse")
def reverse(x: Array, axes: Array | None = None) -> Array:
    return np.flip(x, None if axes is None else tuple(int(axis) for axis in axes.reshape(-1)))


@kernel("reverse_sequence")
def reverse_sequence(
    x: Array, lengths: Array, call: Call, seq_axis: Array | int = 0, batch_axis: Array | int = 0
) -> Array:
    moved = np.moveaxis(x, (int(batch_axis), int(seq_axis)), (0, 1))
    if call.strict and ((lengths < 0) | (lengths > moved.shape[1])).any():
        call.undefined(f"lengths {lengths.tolist()} of sequences of {moved.shape[1]}")
    turned = moved.copy()
    for row, length in enumerate(lengths.reshape(-1).tolist()):
        turned[row, :length] = moved[row, :length][::-1]
    return np.moveaxis(turned, (0, 1), (int(batch_axis), int(seq_axis)))


@kernel("sliding_windows")
def sliding_windows(x: Array, axis: Array, size: Array, stride: Array | int = 1) -> Array:
    place = int(axis) % x.ndim
    windows = np.moveaxis(np.lib.stride_tricks.sliding_window_view(x, int(size), place), -1, place + 1)
    return np.ascontiguousarray(windows[(slice(None),) * place + (slice(None, None, int(stride)),)])


@kernel("band_part")
def band_part(x: Array, lower: Array | int = -1, upper: Array | int = -1) -> Array:
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    below, above = int(lower), int(upper)
    band = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return np.where(band, x, np.zeros((), x.dtype))
