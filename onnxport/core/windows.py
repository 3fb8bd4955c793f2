"""Which elements of a sliding window meet data, and which its padding alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.core.arrays import Array


def taps_on_data(
    sizes: Sequence[int | None],
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Array:
    """Return bool[taps]: which elements of a filter meet data at some place of a map.

    On a map smaller than the filter some meet padding alone: of 3 x 3 on one pixel, all but the middle one.

    Args:
        sizes: of the map; None where it is open, so that every element may meet data.
        pads: zeros before the map on each axis, then those behind it.
    """
    found: Array = np.ones((), bool)
    for axis, (size, count) in enumerate(zip(sizes, taps, strict=True)):
        met: Array = np.ones(count, bool)
        if size is not None:
            room = size + pads[axis] + pads[len(taps) + axis] - dilations[axis] * (count - 1) - 1
            starts = np.arange(room // strides[axis] + 1) * strides[axis] - pads[axis]
            places = starts + np.arange(count)[:, None] * dilations[axis]
            met = np.any((places >= 0) & (places < size), axis=1)
        found = found[..., None] & met
    return np.asarray(found)
