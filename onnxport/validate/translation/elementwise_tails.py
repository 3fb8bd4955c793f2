"""What differs between the element-wise functions behind two equal cores: factors, shifts and bounds (heads.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.translation.forms import Head
from onnxport.validate.translation.rounding_bounds import (
    FLOAT_NOISE,
    HALF_STEPS,
    LARGEST,
    MOST_CUT,
    MOST_ROUNDINGS,
    Rounded,
    cut_share,
    hidden_grid,
    is_cut,
    is_inside,
)

About = Literal["operator", "setting", "scale", "shift", "bound"]

_HALF = 0.51
_LEAST = 1e-12
# Times the half steps: a factor that is rounded, and a shift that is folded with it and rounded again.
_ONE_AFTER_THE_OTHER = 2.0
# The largest float16 stands for all beyond, as masks of -3.4e38.
_HUGE = 65504.0
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


def compare_tails(
    head: Head, source: Head, is_absorbed: bool, rounding: str
) -> Iterator[tuple[str, bool, About]]:
    """Yield what differs between the element-wise functions behind two equal cores, whether it is near, and its kind.

    Args:
        rounding: see Graph.
    """
    if not _have_like_sizes(head, source):
        yield "its factors, shifts and bounds have other sizes than the source's", False, "scale"
        return
    pairs: tuple[tuple[About, Rounded, Rounded, float], ...] = (
        ("scale", head.scale, source.scale, 0.0),
        ("shift", head.shift, source.shift, steps(head)),
    )
    for name, ours, theirs, step in pairs:
        is_alike = follows(ours, theirs, step, _ONE_AFTER_THE_OTHER if rounding else 1.0)
        if not is_absorbed and not (is_alike or _follows_rounded(ours, theirs, step)):
            text = f"it has a {name} of {_numbers(ours.values)}, the source {_numbers(theirs.values)}"
            yield text, bool(rounding) and follows(ours, theirs, step, MOST_ROUNDINGS), name
    if is_absorbed:
        source = _with_bounds_times(source, head)
    yield from ((text, False, "bound") for text in _bounds(head, source, rounding))


def _have_like_sizes(*heads: Head) -> bool:
    """Return whether all numbers behind two cores broadcast with each other."""
    try:
        np.broadcast_shapes(
            *(
                np.shape(each)
                for head in heads
                for each in (head.scale.values, head.shift.values, head.low, head.high)
            )
        )
    except ValueError:
        return False
    return True


def _with_bounds_times(source: Head, head: Head) -> Head:
    """Return the source with its bounds times the factor by which the artefact's value of the same core differs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.asarray(head.scale.values / source.scale.values)
    factor = np.where(np.isfinite(factor), factor, 1.0)
    # A negative factor would turn an infinite bound round.
    low, high = (
        np.where(np.isfinite(each), each, 0.0) * factor + np.where(np.isfinite(each), 0.0, each)
        for each in (source.low, source.high)
    )
    return replace(source, low=low, high=high)


def follows_alike(head: Head, source: Head) -> bool:
    """Return whether factor and shift behind two equal cores are the same."""
    return follows(head.scale, source.scale, 0.0) and follows(head.shift, source.shift, 0.0)


def follows(
    ours: Rounded, theirs: Rounded, step: float, times: float = 1.0, *, most_cut: float = MOST_CUT
) -> bool:
    """Return whether two factors or shifts agree; a shift may be off by half a `step`: zero points are integers.

    Stored integers may cut off the largest, as those of weights do (parameters.py), where others tell their scale.

    Args:
        times: factor of the half steps.
        most_cut: of the sum of squares.
    """
    try:
        difference = np.abs(ours.values - theirs.values)
        noise = FLOAT_NOISE * np.abs(theirs.values).max(initial=0.0) + _HALF * step
        is_near = difference <= (ours.half + theirs.half) * 1.001 * times + noise + _LEAST
        cut = is_cut(ours, theirs)
        if (is_near | cut & (np.abs(ours.values) >= _HUGE)).all():
            return True
        if not (is_near & is_inside(ours)).any():
            return False
        whole = Rounded(np.broadcast_to(theirs.values, difference.shape))
        return bool((is_near | cut).all() and cut_share(ours, whole, cut & ~is_near).max() <= most_cut)
    except ValueError:  # shapes that do not broadcast
        return False


def _follows_rounded(ours: Rounded, theirs: Rounded, step: float) -> bool:
    """Return whether two factors or shifts agree where the first was quantized, and is stored as floats."""
    if not ours.is_exact:
        return False
    axes = [None, *(axis for axis, size in enumerate(ours.values.shape) if size > 1)]
    grids = (hidden_grid(ours.values, axis) for axis in axes)
    return any(follows(each, theirs, step, most_cut=0.0) for each in grids if each is not None)


def steps(head: Head) -> float:
    return max((float(np.max(each.step)) for each in head.grids), default=0.0)


def _bounds(head: Head, source: Head, rounding: str) -> Iterator[str]:
    """Yield a bound that one side has and the other has not: a grid that ends at a bound does what a Clip does."""
    noise = FLOAT_NOISE + (MOST_ROUNDINGS * HALF_STEPS[rounding] if rounding else 0.0)
    for name, sign in (("lower", 1.0), ("upper", -1.0)):
        ours, theirs = ((each.low if sign > 0 else -each.high) for each in (head, source))
        # No number lies beyond these.
        largest = LARGEST[rounding] if rounding else _LARGEST_FLOAT
        ours, theirs = (np.where(each <= -largest, -np.inf, each) for each in (ours, theirs))
        ends = [each.low if sign > 0 else -each.high for each in head.grids]
        slack = _HALF * steps(head) + noise * float(np.max(np.abs(_finite(theirs)), initial=0.0))
        if not np.all(ours <= theirs + slack):
            yield f"it is cut off at its {name} end, at {_numbers(sign * ours)}; the source is not"
        kept = ours
        for end in ends:
            kept = np.maximum(kept, end)
        if not np.all(kept >= theirs - slack):
            yield f"nothing cuts it off at its {name} end, where the source does at {_numbers(sign * theirs)}"


def without_bounds_of_grids(head: Head) -> Head:
    """Return a head without bounds at the ends of its grids, which cut off there anyway.

    A Max with a constant that lies below its grid is stored with the grid's lower end.
    """
    low, high = head.low, head.high
    for grid in head.grids:
        low = np.where(np.isclose(low, grid.low, rtol=FLOAT_NOISE, atol=0), -np.inf, low)
        high = np.where(np.isclose(high, grid.high, rtol=FLOAT_NOISE, atol=0), np.inf, high)
    return replace(head, low=low, high=high)


def _finite(values: Array) -> Array:
    found = np.asarray(values, np.float64)
    return found[np.isfinite(found)]


def _numbers(values: Array) -> str:
    flat = np.asarray(values).reshape(-1)
    return f"{flat[0]:.6g}" if len(flat) == 1 else f"{flat.min():.6g} to {flat.max():.6g}"
