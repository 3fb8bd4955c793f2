"""Reads of a feature map at computed positions: GridSample, AffineGrid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from onnxport.optimizers.rewrites.terms import Draft, Term, formula

_CUBIC_A = -0.75  # of GridSample's cubic convolution, as PyTorch and ONNX Runtime have it


@dataclass(frozen=True)
class Tap:
    """The elements of one axis that a sample reads: integer positions, and their weights if not 1."""

    index: Term
    weight: Term | None


def rows_of(x: Term) -> Term:
    """Reshape a feature map [N, C, ...] to rows of channels [N * ..., C]."""
    channels = x.size(1)
    return x.transpose(0, *range(2, x.rank), 1).reshape(-1, channels)


def sample(
    draft: Draft, rows: Term, batch: Term, sizes: Sequence[int | Term], axes: Sequence[Sequence[Tap]]
) -> Term:
    """Return the weighted sum over all combinations of one tap per axis, with channels last.

    `rows` are those of rows_of; `batch` is each sample's image, int32, broadcast with the taps.
    """
    parts = []
    for taps in product(*axes):
        place = batch
        for size, tap in zip(sizes, taps, strict=True):
            place = place * size + tap.index
        found = rows.gather(place)
        weights = [tap.weight for tap in taps if tap.weight is not None]
        if weights:
            found = found * reduce(lambda a, b: a * b, weights).unsqueeze(-1)
        parts.append(found)
    return reduce(lambda a, b: a + b, parts)


# ---- GridSample


@formula("GridSample")
def grid_sample(draft: Draft) -> list[Term]:
    """Sample x at grid positions between -1 and 1 (ONNX GridSample-22), as ONNX Runtime does."""
    x, grid = draft.input(0), draft.input(1).cast(np.float32)
    mode = draft.attribute("mode", "linear")
    spatial = x.rank - 2
    if spatial not in (2, 3) or (spatial == 3 and mode.endswith("cubic")):
        draft.unsupported(f"{mode} sampling over {spatial} axes")
    corners, padding = bool(draft.attribute("align_corners", 0)), draft.attribute("padding_mode", "zeros")
    sizes = [x.size(axis) for axis in range(2, x.rank)]
    axes = []
    for axis, size in enumerate(sizes):
        # The grid's last axis counts the other way round: x, then y, then z.
        n, length = grid.gather(spatial - 1 - axis, axis=-1), draft.number(size)
        places = _PLACES[mode](
            (n + 1.0) / 2.0 * (length - 1.0) if corners else ((n + 1.0) * length - 1.0) / 2.0
        )
        axes.append([_pad_tap(draft, place, weight, size, padding, corners) for place, weight in places])
    batch = draft.range(x.size(0)).reshape(-1, *(1,) * spatial)
    result = sample(draft, rows_of(x.cast(np.float32)), batch, sizes, axes)
    return [result.transpose(0, spatial + 1, *range(1, spatial + 1)).cast(x.dtype)]


def _linear(position: Term) -> list[tuple[Term, Term | None]]:
    lower = position.call("Floor")
    share = position - lower
    return [(lower, 1.0 - share), (lower + 1.0, share)]


def _cubic(position: Term) -> list[tuple[Term, Term | None]]:
    lower = position.call("Floor")
    share = position - lower
    distances, a = [share + 1.0, share, 1.0 - share, 2.0 - share], _CUBIC_A
    weights = [
        ((x * a - 5 * a) * x + 8 * a) * x - 4 * a if i in (0, 3) else (x * (a + 2) - (a + 3)) * x * x + 1.0
        for i, x in enumerate(distances)
    ]
    return [(lower + float(i - 1), weight) for i, weight in enumerate(weights)]


# GridSample mode, by its newer and its older name -> the whole positions around a position, and their weights.
_PLACES: dict[str, Callable[[Term], list[tuple[Term, Term | None]]]] = {
    "bicubic": _cubic,
    "bilinear": _linear,
    "cubic": _cubic,
    "linear": _linear,
    "nearest": lambda position: [(position.call("Round"), None)],
}


def _pad_tap(
    draft: Draft, place: Term, weight: Term | None, size: int | Term, padding: str, corners: bool
) -> Tap:
    """Move an integer position inside the axis; outside it has weight 0 if the padding is zeros."""
    last = draft.number(size) - 1.0
    if padding == "reflection":
        place = _reflect(place, last, corners)
    if padding == "zeros":
        inside = ((place >= 0.0) & (place <= last)).cast(np.float32)
        weight = inside if weight is None else weight * inside
    return Tap(clamp(place, last), weight)


def clamp(place: Term, last: float | Term) -> Term:
    """Return integer positions as indices, clamped as floats: some have no integer."""
    return place.maximum(0.0).minimum(last).cast(np.int32)


def _reflect(place: Term, last: float | Term, corners: bool) -> Term:
    """Reflect between the first and last element's centres (corners) or outer edges."""
    start, span = (0.0, last) if corners else (-0.5, last + 1.0)
    span = span.maximum(1.0) if isinstance(span, Term) else max(span, 1.0)
    along = place - start
    along = along - (along / (span * 2.0)).call("Floor") * (span * 2.0)
    return (span - (along - span).call("Abs") + start).call("Floor")


# ---- AffineGrid


@formula("AffineGrid")
def affine_grid(draft: Draft) -> list[Term]:
    """Return positions between -1 and 1 of a grid under an affine map per image (ONNX AffineGrid-20)."""
    theta, size = draft.input(0), draft.input(1)
    (count,) = size.shape
    if count not in (4, 5):
        draft.unsupported(f"a size of {count} numbers")
    spatial = count - 2
    known = draft.constant_input(1)
    sizes: list[int | Term] = [
        int(known[axis]) if known is not None else size.gather(np.array(axis, np.int64)).cast(np.int32)
        for axis in range(2, count)
    ]
    corners = bool(draft.attribute("align_corners", 0))
    whole = draft.sizes(sizes)
    axes = []
    for axis, length in enumerate(sizes):
        steps = _centres(draft, length, corners)
        along = [-1 if other == axis else 1 for other in range(spatial)]
        axes.append(steps.reshape(*along).call("Expand", whole).reshape(1, -1))
    ones = axes[0] - axes[0] + 1.0
    # Each image's [x y z, x y z 1] times the points [x y z 1, points].
    points = draft.op("Concat", *reversed(axes), ones, axis=0)
    moved = theta.cast(np.float32).call("MatMul", points).transpose(0, 2, 1)
    return [moved.reshape(theta.size(0), *sizes, spatial).cast(theta.dtype)]


def _centres(draft: Draft, length: int | Term, corners: bool) -> Term:
    """Return positions from -1 to 1: corners (a single one is 1, as in ONNX Runtime), or centres of equal parts."""
    places, count = draft.range(length, np.float32), draft.number(length)
    if not corners:
        return (places * 2.0 + 1.0) / count - 1.0
    if isinstance(count, float):
        return places * 2.0 / (count - 1.0) - 1.0 if count > 1 else places + 1.0
    steps = count - 1.0
    return places * 2.0 / steps.maximum(1.0) - (steps.minimum(1.0) * 2.0 - 1.0)
