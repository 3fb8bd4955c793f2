"""Recognize weights that were rounded for the least error of their product, not to nearest.

GPTQ (Frantar et al. 2023) and its like move a weight to take back what rounding another one did to the result. Which
samples they saw is unknown, but not what they are for: on values that the operand really has, the product errs less
than with the same weights rounded to nearest on the same grid. That is computed here, on rows of the operand:

    sum |(W' - W) x|^2  <=  sum |(nearest(W) - W) x|^2

Single channels are held to the error that rounding to nearest is expected to have, a variance of step^2 / 12 for each
weight. Its own error is near 0 by chance in some channel where rows are few or alike, as behind a global pool.
"""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.translation.forms import Core
from onnxport.validate.translation.rounding_bounds import Rounded

# Rows of one set of inputs, and elements of them.
ROWS, _ELEMENTS = 512, 1 << 22
# Samples differ: an error that much larger still counts as less.
_SLACK = 1.05


def operand_rows(core: Core, values: Array) -> Array | None:
    """Return what a product multiplies with its weight at some places of its result: [rows, groups, depth].

    None for padding by name.
    """
    groups = core.attributes.get("group", 1)
    if core.op == "MatMul":
        return _some(values.reshape(-1, 1, values.shape[-1]))
    if core.op == "ConvTranspose":
        return _some(np.moveaxis(values, 1, -1).reshape(-1, groups, values.shape[1] // groups))
    assert core.weight is not None
    if core.attributes["auto_pad"] != "NOTSET":
        return None
    taps, axes = core.weight.values.shape[2:], values.ndim - 2
    pads = core.attributes["pads"]
    padded = np.pad(values, [(0, 0), (0, 0), *((pads[i], pads[i + axes]) for i in range(axes))])
    strides, dilations = core.attributes["strides"], core.attributes["dilations"]
    sizes = [(padded.shape[2 + i] - dilations[i] * (taps[i] - 1) - 1) // strides[i] + 1 for i in range(axes)]
    if min(sizes, default=1) < 1:
        return None
    count = min(ROWS, _ELEMENTS // (values.shape[1] * int(np.prod(taps))) + 1)
    places = np.linspace(0, len(values) * int(np.prod(sizes)) - 1, count).astype(np.int64)
    sample, *position = np.unravel_index(np.unique(places), (len(values), *sizes))
    parts = [
        padded[
            (
                sample,
                slice(None),
                *(at * strides[i] + tap[i] * dilations[i] for i, at in enumerate(position)),
            )
        ]
        for tap in np.ndindex(*taps)
    ]
    return np.stack(parts, axis=-1).reshape(len(sample), groups, -1).astype(np.float64)


def _some(rows: Array) -> Array:
    places = np.unique(np.linspace(0, len(rows) - 1, ROWS).astype(np.int64))
    return np.asarray(rows[places], np.float64)


def compare_errors(core: Core, ours: Rounded, theirs: Rounded, rows: Array) -> tuple[bool, float]:
    """Compare a product's error on `rows` with that of the weight rounded to nearest.

    Returns:
        Whether it is less in sum, and how many times as large it is at the worst channel, where the larger of nearest's
        own and its expected error counts.
    """
    half = np.broadcast_to(ours.half, ours.values.shape)
    step = np.where(half > 0, 2 * half, 1.0)
    away = theirs.values - ours.values
    nearest = np.rint(away / step) * step - away
    given, least = (_squares(_by_group(core, each), rows) for each in (away, nearest))
    usual = np.maximum(least, _expected(_by_group(core, np.square(half) / 3), rows))
    times = np.divide(given, usual, out=np.where(given > 0, np.inf, 1.0), where=usual > 0)
    # Rows of zeros tell nothing.
    return bool(0 < least.sum() >= given.sum() / _SLACK), float(times.max())


def _by_group(core: Core, values: Array) -> Array:
    """Return a weight as [groups, channels of one, depth]."""
    groups = core.attributes.get("group", 1)
    if core.op == "MatMul":
        return values.T[None]
    if core.op == "Conv":
        return values.reshape(groups, len(values) // groups, -1)
    return np.moveaxis(values.reshape(groups, len(values) // groups, -1), 1, 2)


def _expected(variances: Array, rows: Array) -> Array:
    """Return the sum of squares that each channel's errors have on average, if they are independent."""
    return np.concatenate(
        [each @ np.square(rows[:, group]).sum(axis=0) for group, each in enumerate(variances)]
    )


def _squares(errors: Array, rows: Array) -> Array:
    """Return the sum of squares of each channel's errors."""
    found = [np.square(rows[:, group] @ each.T).sum(axis=0) for group, each in enumerate(errors)]
    return np.concatenate(found)
