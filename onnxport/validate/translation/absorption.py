"""Products that make up for a factor and a shift of what they read.

A file may hold a k x + t where the source holds x, if each product that reads it has this in weight and bias: channels
made alike (Nagel et al. 2019, section 4.1), a shift that no zero point can say, a sum moved behind the product. The
product is then compared as one of x:

    W (k x + t) + b = (W k) x + (W t + b)

What is cut off stays so under a factor above 0, at the factor's multiple of the bounds (matches.py compares these), and
under no shift.

Zeros that a convolution pads with are no x: a shift may pass it by half a step only, as far as a zero point rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.translation.forms import Core, Head
from onnxport.validate.translation.rounding_bounds import FLOAT_NOISE, Rounded

_HALF_STEP = 0.51


def absorb(core: Core, head: Head, source: Head) -> tuple[Core, Array] | None:
    """Return the artefact's product as one of the source's operand; None where it cannot be.

    Args:
        head, source: normal forms of both operands, of the same core.

    Returns:
        The product, and the factor of each channel of the operand that it makes up for.
    """
    if core.op == "ConvTranspose":
        return None
    is_bounded = any(np.isfinite(each).any() for each in (source.low, source.high))
    assert core.weight is not None
    inputs = (
        core.weight.values.shape[1] * core.attributes["group"]
        if core.op == "Conv"
        else len(core.weight.values)
    )
    rank = core.weight.values.ndim if core.op == "Conv" else head.rank
    if rank is None:
        return None
    axis = 1 if core.op == "Conv" else rank - 1
    parts = [
        _along(each.values, axis, rank, inputs)
        for each in (head.scale, head.shift, source.scale, source.shift)
    ]
    if any(each is None for each in parts):
        return None
    ours, shift, theirs, other = (each for each in parts if each is not None)
    if not theirs.all():
        return None
    # a = ours * c + shift and s = theirs * c + other, so a = factor * s + offset
    factor = ours / theirs
    offset = shift - factor * other
    offset = np.where(np.abs(offset) > FLOAT_NOISE * np.abs(shift), offset, 0.0)
    if is_bounded and (offset.any() or (factor <= 0).any()):
        return None
    if _is_padded(core) and (np.abs(offset) > _HALF_STEP * _step(head)).any():
        return None
    return _read_through(core, factor, offset), factor


def behind_view(head: Head, before: Sequence[int], after: Sequence[int]) -> Head:
    """Return a head with its constants as they broadcast behind a Reshape that adds or drops axes of size 1.

    Args:
        before, after: the sizes of the value and of the view.
    """
    places = [place for place, size in enumerate(after) if size != 1]
    long = [place for place, size in enumerate(before) if size != 1]

    def view(values: Array) -> Array:
        full, sizes = (1,) * (len(before) - values.ndim) + values.shape, [1] * len(after)
        for place, source in zip(places, long, strict=True):
            sizes[place] = full[source]
        return values.reshape(sizes)

    return replace(
        head,
        scale=head.scale.moved(view),
        shift=head.shift.moved(view),
        low=view(head.low),
        high=view(head.high),
        rank=len(after),
    )


def _read_through(core: Core, factor: Array, offset: Array) -> Core:
    """Return the product of factor * x + offset as one of x."""
    assert core.weight is not None
    assert core.bias is not None
    if not offset.any() and (factor == 1).all():  # of most products: a large weight takes long
        return core
    if core.op == "MatMul":
        shifted = core.weight.times(Rounded(offset[:, None]))
        weight = core.weight.times(Rounded(factor[:, None]))
        return replace(core, weight=weight, bias=core.bias.plus(_sum(shifted, (0,))))
    groups, channels = core.attributes["group"], core.weight.values.shape[0]
    shape = (channels, core.weight.values.shape[1]) + (1,) * (core.weight.values.ndim - 2)
    spread_factor, spread_offset = (
        np.repeat(each.reshape(groups, -1), channels // groups, axis=0).reshape(shape)
        for each in (factor, offset)
    )
    shifted = core.weight.times(Rounded(spread_offset))
    axes = tuple(range(1, core.weight.values.ndim))
    weight = core.weight.times(Rounded(spread_factor))
    return replace(core, weight=weight, bias=core.bias.plus(_sum(shifted, axes)))


def _sum(constant: Rounded, axes: tuple[int, ...]) -> Rounded:
    half = np.broadcast_to(constant.half, constant.values.shape)
    return Rounded(constant.values.sum(axis=axes), half.sum(axis=axes))


def _along(values: Array, axis: int, rank: int, length: int) -> Array | None:
    """Return numbers as [length] along `axis`; None where they vary along others."""
    if values.ndim > rank:
        return None
    full = (1,) * (rank - values.ndim) + values.shape
    if any(size != 1 for place, size in enumerate(full) if place != axis) or full[axis] not in (1, length):
        return None
    return np.broadcast_to(values.reshape(-1), (length,))


def _is_padded(core: Core) -> bool:
    if core.op != "Conv":
        return False
    return bool(any(core.attributes["pads"])) or core.attributes["auto_pad"] != "NOTSET"


def _step(head: Head) -> float:
    return max((float(np.max(each.step)) for each in head.grids), default=0.0)
