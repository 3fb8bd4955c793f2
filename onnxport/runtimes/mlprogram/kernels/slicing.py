"""Parts of a tensor by ranges, and the room around it."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.registry import Call, kernel


def _ranges(
    x: Array,
    begin: Array,
    end: Array,
    stride: Array | None,
    begin_mask: Array | None,
    end_mask: Array | None,
    squeeze_mask: Array | None,
    call: Call,
) -> tuple[slice | int, ...]:
    """NumPy's index for what slice_by_index describes; a masked end is open in the stride's direction."""

    def masked(mask: Array | None, axis: int) -> bool:
        return mask is not None and bool(mask.reshape(-1)[axis])

    ranges: list[slice | int] = []
    for axis, size in enumerate(x.shape):
        step = 1 if stride is None else int(stride.reshape(-1)[axis])
        first = None if masked(begin_mask, axis) else int(begin.reshape(-1)[axis])
        if masked(squeeze_mask, axis):
            at = first or 0
            if not -size <= at < size:
                call.undefined(f"element {at} of an axis of {size}")
            ranges.append(min(max(at, -size), size - 1))
            continue
        if not step:
            raise ValueError(f"stride 0 on axis {axis}")
        ranges.append(slice(first, None if masked(end_mask, axis) else int(end.reshape(-1)[axis]), step))
    return tuple(ranges)


@kernel("slice_by_index")
def slice_by_index(
    x: Array,
    begin: Array,
    end: Array,
    call: Call,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> Array:
    return np.asarray(x[_ranges(x, begin, end, stride, begin_mask, end_mask, squeeze_mask, call)])


@kernel("slice_update")
def slice_update(
    x: Array,
    update: Array,
    begin: Array,
    end: Array,
    call: Call,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> Array:
    place = _ranges(x, begin, end, stride, begin_mask, end_mask, squeeze_mask, call)
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
def pad(x: Array, pad: Array, call: Call, mode: str = "constant", constant_val: Array | float = 0.0) -> Array:
    """Pairs for the last axes; those before keep their size."""
    pairs = pad.reshape(-1, 2).tolist()
    widths = [[0, 0]] * (x.ndim - len(pairs)) + pairs
    if (pad < 0).any():
        raise ValueError(f"negative padding {pad.tolist()}")
    if mode == "constant":
        return np.pad(x, widths, constant_values=np.asarray(constant_val, x.dtype))
    room = 1 if mode == "reflect" else 0
    if any(max(pair) > max(size - room, 0) for pair, size in zip(widths, x.shape, strict=True)):
        call.undefined(f"{mode} of {pad.tolist()} around {x.shape}, which is more than there is")
    return np.pad(x, widths, mode=_MODES[mode])  # type: ignore[call-overload, no-any-return]
