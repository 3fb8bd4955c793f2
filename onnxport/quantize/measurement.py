"""The measurements that the chosen methods need, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.accuracy.ranges import mse_range_of_rows, percentile_range_of_halves
from onnxport.quantize.accuracy.rows import RowSample, from_upper_half
from onnxport.quantize.calibration.observers import (
    ChannelExtremes,
    ChannelMeans,
    Histogram,
    Observer,
    elements_per_sample,
)
from onnxport.quantize.calibration.ranges import find_range, widen_to_deviations
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import Placement
from onnxport.quantize.placement.channels import axis_of_inputs, channel_axes, float_summands, output_region
from onnxport.quantize.tensor_summary import Summaries, TensorSummary

# The percentile ranges that mse is compared with: of its rows, so that they need no histogram.
ROW_PERCENTILE = "row percentile"
# Least and greatest value of an activation.
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Measurements:
    """The measurements of the samples."""

    ranges: Ranges  # of every activation whose grid they have to tell
    # Activation to the mean of each of its channels, float64; of what products with a bias read. Empty
    # where biases are to stay what they are.
    means: Mapping[str, Array] = field(default_factory=dict)
    # Activation to the greatest value of each of its channels, float32; of what products read whose sums
    # must not saturate. Empty where they may.
    maxima: Mapping[str, Array] = field(default_factory=dict)


def choose_observers(
    graph: ir.Graph, placement: Placement, params: QuantizeParams, samples: int
) -> dict[str, list[Observer]]:
    """Return the observers of each activation that the methods need, of so many samples.

    16-bit activations need no rows, since only clipping loses there.
    """
    by_rows = params.method in ("mse", "auto")
    whole = float_summands(graph, placement) if params.method == "mse" else frozenset[str]()
    axes, results = channel_axes(graph, placement), output_region(graph)
    found: dict[str, list[Observer]] = {}
    for name in placement.observed:
        if name in whole:
            found[name] = [Histogram(0)]
        elif by_rows and name not in results and placement.dtype_of(name) != "int16":
            part = elements_per_sample(samples) if params.method == "auto" else 0
            found[name] = [Histogram(part), RowSample(axes[name], samples)]
        else:
            found[name] = [Histogram(0 if params.method == "minmax" else elements_per_sample(samples))]
    if params.bias_correction:
        corrected = [unit for unit in placement.units if unit.bias is not None]
        for name, axis in {unit.reads[0]: axis_of_inputs(unit) for unit in corrected}.items():
            found.setdefault(name, []).append(ChannelMeans(axis))
    if params.for_cpu == "any" and placement.dtype == "uint8" and not params.reduce_range:
        limited = [unit for unit in placement.units if unit.weight is not None]
        for name, axis in {unit.reads[0]: axis_of_inputs(unit) for unit in limited}.items():
            found.setdefault(name, []).append(ChannelExtremes(axis))
    return found


def read_measurements(
    graph: ir.Graph,
    placement: Placement,
    params: QuantizeParams,
    seen: Summaries,
    *,
    even: frozenset[str] = frozenset(),
    compares: bool = False,
) -> Mapping[str, Measurements]:
    """Read the ranges of one method, or of each that is tried.

    Args:
        seen: of the tensors of `choose_observers`.
        compares: whether mse is compared with percentiles (range_choice.py).
        even: tensors whose channels reach equally far: each has values at the ends, so mse takes their whole range.
            The same holds for float_summands.
    """
    is_limited = params.for_cpu == "any" and placement.dtype == "uint8" and not params.reduce_range
    read = {unit.reads[0] for unit in placement.units if unit.weight is not None}
    means = {name: each.means for name, each in seen.items() if each.means is not None}
    maxima = {
        name: each.extremes[1]
        for name, each in seen.items()
        if is_limited and name in read and each.extremes is not None
    }
    tried = _TRIED if params.method == "auto" else (params.method, *([ROW_PERCENTILE] if compares else ()))
    whole = even | float_summands(graph, placement) if params.method in ("mse", "auto") else frozenset[str]()
    found: dict[str, Ranges] = {method: _ranges(graph, placement, seen, method, whole) for method in tried}
    return {name: Measurements(ranges, means, maxima) for name, ranges in found.items()}


# The ranges of which `auto` keeps one: mse counts every place alike, plain mse does not. Minmax, and the mean of both
# mse, are left out: on 36 networks they led on held-back samples and were up to 3.7 and 35 dB behind on others.
_TRIED = ("mse", "plain mse", "percentile")
# What a method is where only a histogram is known.
_BY_HISTOGRAM = {"plain mse": "mse", ROW_PERCENTILE: "percentile"}
# Methods whose outputs of the graph get some room.
_WITH_ROOM = frozenset(("mse", "plain mse", ROW_PERCENTILE))


def _ranges(
    graph: ir.Graph, placement: Placement, seen: Summaries, method: str, whole: frozenset[str]
) -> Ranges:
    """Return the range of every activation by a method; by mse, outputs of the graph get some room beyond."""
    outputs, region = {value.name for value in graph.outputs}, output_region(graph)
    found = {}
    for name in placement.observed:
        levels = 2 ** (16 if placement.dtype_of(name) == "int16" else 8)
        ends = _range(
            seen[name], "minmax" if name in whole else method, levels, is_relative=name not in region
        )
        histogram = seen[name].histogram
        if name in outputs and method in _WITH_ROOM and histogram is not None:
            ends = widen_to_deviations(histogram, ends)
        found[name] = ends
    return found


def _range(seen: TensorSummary, method: str, levels: int, *, is_relative: bool) -> tuple[float, float]:
    """Return the range of an activation: mse relative to the signal by its rows, all else by its histogram."""
    is_of_rows = method == ROW_PERCENTILE or (method == "mse" and (is_relative or seen.histogram is None))
    halves = seen.halves if is_of_rows else None
    if method == "minmax" or (halves is not None and not halves.size):
        return min(seen.low, 0.0), max(seen.high, 0.0)
    if halves is not None and method == ROW_PERCENTILE:
        return percentile_range_of_halves(halves, levels)
    if halves is not None:
        return mse_range_of_rows(from_upper_half(halves), levels, is_relative=is_relative, halves=halves)
    assert seen.histogram is not None
    return find_range(seen.histogram, _BY_HISTOGRAM.get(method, method), levels)
