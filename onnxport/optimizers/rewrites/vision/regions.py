"""Regions of a feature map resampled to one size: RoiAlign, MaxRoiPool."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from onnxport.optimizers.rewrites.terms import Draft, Term, formula
from onnxport.optimizers.rewrites.vision.sampling import Tap, clamp, rows_of, sample


@dataclass(frozen=True)
class _Extent:
    """Regions along one axis: start, size of a bin and samples in a bin, float32 [regions, 1]; how many bins."""

    start: Term
    bin: Term
    samples: Term
    bins: int


# ---- RoiAlign


@formula("RoiAlign")
def roi_align(draft: Draft) -> list[Term]:
    """Average samples in each bin of each region (ONNX RoiAlign-22)."""
    x, rois = draft.input(0), draft.input(1).cast(np.float32)
    batch = draft.input(2).cast(np.int32)
    ratio, mode = draft.attribute("sampling_ratio", 0), draft.attribute("mode", "avg")
    if mode != "avg":
        draft.unsupported("mode max, on which ONNX Runtime and the ONNX specification differ")
    extents = [_extent(draft, rois, axis, ratio) for axis in (1, 0)]
    rows, sizes = rows_of(x.cast(np.float32)), [x.size(2), x.size(3)]
    image = batch.reshape(-1, 1, 1)
    if ratio > 0:
        taps = (_taps(draft, extents, sizes, offsets) for offsets in product(range(ratio), repeat=2))
        samples = (sample(draft, rows, image, sizes, each) for each in taps)
        mean = reduce(operator.add, samples) / float(ratio * ratio)
    else:
        mean = _adaptive_mean(draft, rows, image, sizes, extents)
    return [mean.transpose(0, 3, 1, 2).cast(x.dtype)]


def _extent(draft: Draft, rois: Term, axis: int, ratio: int) -> _Extent:
    """Return the regions along x (0) or y (1)."""
    scale = draft.attribute("spatial_scale", 1.0)
    halves = draft.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    bins = draft.attribute(("output_width", "output_height")[axis], 1)
    start, end = (
        rois.gather(np.array([column], np.int64), axis=1) * scale - (0.5 if halves else 0.0)
        for column in (axis, axis + 2)
    )
    size = end - start if halves else (end - start).maximum(1.0)
    bin_ = size / float(bins)
    samples = bin_.call("Ceil") if ratio <= 0 else draft.term(float(ratio))
    return _Extent(start, bin_, samples, bins)


def _taps(
    draft: Draft, extents: list[_Extent], sizes: list[int | Term], offsets: tuple[int, ...]
) -> list[list[Tap]]:
    """Return the taps of one sample in every bin, [regions, bins, 1] and [regions, 1, bins]."""
    taps = []
    for axis, (extent, size, offset) in enumerate(zip(extents, sizes, offsets, strict=True)):
        bins = draft.range(extent.bins, np.float32).reshape(1, -1)
        position = extent.start + bins * extent.bin + extent.bin * (offset + 0.5) / extent.samples
        taps.append(_interpolate(draft, position, size, None, 2 - axis))
    return taps


def _interpolate(
    draft: Draft, position: Term, size: int | Term, counts: Term | None, unit_axis: int
) -> list[Tap]:
    """Return both neighbours of positions [regions, n]; weight 0 beyond one element outside the axis."""
    length = draft.number(size)
    inside = ((position >= -1.0) & (position <= length)).cast(np.float32)
    if counts is not None:
        inside = inside * counts
    place = position.maximum(0.0).minimum(length - 1.0)
    lower = place.call("Floor")
    share = place - lower
    pairs = ((lower, (1.0 - share) * inside), (lower + 1.0, share * inside))
    return [
        Tap(clamp(each, length - 1.0).unsqueeze(unit_axis), weight.unsqueeze(unit_axis))
        for each, weight in pairs
    ]


def _adaptive_mean(
    draft: Draft, rows: Term, image: Term, sizes: list[int | Term], extents: list[_Extent]
) -> Term:
    """Average as many samples per bin as its size requires: all take the largest number and mask the rest."""
    axes, limits = [], []
    for axis, (extent, size) in enumerate(zip(extents, sizes, strict=True)):
        limit = extent.samples.call("ReduceMax", keepdims=0).maximum(1.0).cast(np.int32)
        number = draft.range(limit, np.float32).reshape(1, 1, -1)
        bins = draft.range(extent.bins, np.float32).reshape(1, -1, 1)
        own = extent.samples.unsqueeze(2)
        start, bin_ = extent.start.unsqueeze(2), extent.bin.unsqueeze(2)
        position = start + bins * bin_ + (number + 0.5) * bin_ / own.maximum(1.0)
        counts = (number < own).cast(np.float32) + bins * 0.0
        flat = [each.reshape(0, -1) for each in (position, counts)]
        axes.append(_interpolate(draft, flat[0], size, flat[1], 2 - axis))
        limits.append(limit)
    samples = sample(draft, rows, image, sizes, axes)
    channels = rows.draft.op("Shape", rows, dtype=np.int64).gather(np.array(1, np.int64)).cast(np.int32)
    high, wide = (extent.bins for extent in extents)
    total = samples.reshape(-1, limits[0], limits[1] * channels * wide).sum(1)
    total = total.reshape(-1, limits[1], channels).sum(1).reshape(-1, high, wide, channels)
    count = extents[0].samples * extents[1].samples
    return total / count.maximum(1.0).reshape(-1, 1, 1, 1)


# ---- MaxRoiPool


@formula("MaxRoiPool")
def max_roi_pool(draft: Draft) -> list[Term]:
    """Return the maximum in each bin of each region, 0 in an empty bin (ONNX MaxRoiPool-22)."""
    x, rois = draft.input(0), draft.input(1).cast(np.float32)
    sizes = [x.size(2), x.size(3)]
    axes, limits, empty = [], [], []
    for axis, (size, bins) in enumerate(zip(sizes, draft.attribute("pooled_shape", ()), strict=True)):
        first, last = _bounds(draft, rois, 1 - axis, size, bins)
        limit = (last - first).call("ReduceMax", keepdims=0).maximum(1.0).cast(np.int32)
        number = draft.range(limit, np.float32).reshape(1, 1, -1)
        # An element more than once changes no maximum.
        place = (first.unsqueeze(2) + number).minimum(last.unsqueeze(2) - 1.0).reshape(0, -1)
        axes.append([Tap(clamp(place, draft.number(size) - 1.0).unsqueeze(2 - axis), None)])
        limits.append(limit)
        empty.append((last <= first).unsqueeze(2 - axis))
    image = rois.gather(np.array([0], np.int64), axis=1).cast(np.int32).reshape(-1, 1, 1)
    rows = rows_of(x.cast(np.float32))
    found = sample(draft, rows, image, sizes, axes)
    channels = draft.op("Shape", rows, dtype=np.int64).gather(np.array(1, np.int64)).cast(np.int32)
    high, wide = draft.attribute("pooled_shape", ())
    largest = found
    for shape in ((-1, limits[0], limits[1] * channels * wide), (-1, limits[1], channels)):
        largest = largest.reshape(*shape).call("ReduceMax", np.array([1]), keepdims=0)
    largest = largest.reshape(-1, high, wide, channels)
    nothing = empty[0].call("Or", empty[1]).unsqueeze(3)
    return [nothing.where(0.0, largest).transpose(0, 3, 1, 2).cast(x.dtype)]


def _bounds(draft: Draft, rois: Term, axis: int, size: int | Term, bins: int) -> tuple[Term, Term]:
    """Return start and end of every bin, float32 [regions, bins]; regions are rounded, halves away from zero."""
    scale, length = draft.attribute("spatial_scale", 1.0), draft.number(size)
    edges = (rois.gather(np.array([column], np.int64), axis=1) * scale for column in (1 + axis, 3 + axis))
    start, end = ((x.call("Abs") + 0.5).call("Floor") * x.call("Sign") for x in edges)
    bin_ = (end - start + 1.0).maximum(1.0) / float(bins)
    number = draft.range(bins, np.float32).reshape(1, -1)
    first = (number * bin_).call("Floor") + start
    last = ((number + 1.0) * bin_).call("Ceil") + start
    return tuple(each.maximum(0.0).minimum(length) for each in (first, last))
