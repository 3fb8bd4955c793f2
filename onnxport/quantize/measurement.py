"""The measurements that the chosen methods need, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.quantize.accuracy.ranges import weighted_mse_range
from onnxport.quantize.accuracy.rows import RowSample
from onnxport.quantize.calibration import Resources, calibrate
from onnxport.quantize.calibration.observers import (
    ChannelExtremes,
    ChannelMeans,
    Histogram,
    Observer,
    elements_per_sample,
)
from onnxport.quantize.calibration.ranges import find_range, widen_to_deviations
from onnxport.quantize.calibration.shards import Observed
from onnxport.quantize.contract import QuantizationInputs
from onnxport.quantize.float_graph import FloatGraph
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import Placement
from onnxport.quantize.placement.channels import axis_of_inputs, channel_axes, float_summands, output_region

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


def measure(
    graph: FloatGraph,
    placement: Placement,
    params: QuantizeParams,
    setting: QuantizationInputs,
    *,
    even: frozenset[str] = frozenset(),
) -> Mapping[str, Measurements]:
    """Calibrate and read the ranges of one method, or of each that `auto` tries; raises what `calibrate` raises.

    Args:
        even: tensors whose channels reach equally far: each has values at the ends, so mse takes their whole range.
            The same holds for float_summands.
    """
    even |= float_summands(graph.model.graph, placement)
    taps = _taps(graph.model.graph, placement, params, len(setting.calibration), even)
    resources = Resources.of(params)
    seen = calibrate(graph.path, taps, setting.calibration, watch=setting.watch, resources=resources)
    means = {
        name: observer.means()
        for name, observers in seen.items()
        for observer in observers
        if isinstance(observer, ChannelMeans)
    }
    maxima = {
        name: observer.extremes()[1]
        for name, observers in seen.items()
        for observer in observers
        if isinstance(observer, ChannelExtremes)
    }
    tried = _TRIED.get(params.method, (params.method,))
    whole = even if params.method in ("mse", "auto") else frozenset[str]()
    outputs = frozenset(value.name or "" for value in graph.model.graph.outputs)
    found: dict[str, Ranges] = {method: _ranges(placement, seen, method, whole, outputs) for method in tried}
    return {name: Measurements(ranges, means, maxima) for name, ranges in found.items()}


# Method to the ranges of which the best is kept: mse counts every place alike, plain mse does not. `mse` itself does
# not choose: on a few samples the plain one can be ahead and on others behind by as much (PP-OCRv4 rec, 2 dB).
# Minmax, and the mean of both mse, are left out: on 36 networks they led on held-back samples and were up to 3.7 and
# 35 dB behind on others.
_TRIED = {"auto": ("mse", "plain mse", "percentile")}
# Methods that weigh what is cut off against the step.
_WITH_ROOM = frozenset(("mse", "plain mse"))


def _ranges(
    placement: Placement, seen: Observed, method: str, whole: frozenset[str], outputs: frozenset[str]
) -> Ranges:
    """Return the range of every activation by a method; by mse, outputs of the graph get some room beyond."""
    found = {}
    for name in placement.observed:
        levels = 2 ** (16 if placement.dtype_of(name) == "int16" else 8)
        ends = _range(seen[name], "minmax" if name in whole else method, levels)
        histogram = seen[name][0]
        if name in outputs and method in _WITH_ROOM and isinstance(histogram, Histogram):
            ends = widen_to_deviations(histogram, ends)
        found[name] = ends
    return found


def _taps(
    graph: ir.Graph, placement: Placement, params: QuantizeParams, samples: int, even: frozenset[str]
) -> dict[str, Sequence[Observer]]:
    """Return the observers of each activation; 16-bit ones need no rows, since only clipping loses there."""
    by_rows = params.method in ("mse", "auto")
    axes, results = channel_axes(graph, placement), output_region(graph)
    taps: dict[str, list[Observer]] = {}
    for name in placement.observed:
        if name in even and params.method == "mse":
            taps[name] = [Histogram(0)]
        elif by_rows and name not in results and placement.dtype_of(name) != "int16":
            part = elements_per_sample(samples) if params.method == "auto" else 0
            taps[name] = [Histogram(part), RowSample(axes[name], samples)]
        else:
            taps[name] = [Histogram(0 if params.method == "minmax" else elements_per_sample(samples))]
    if params.bias_correction:
        corrected = [unit for unit in placement.units if unit.bias is not None]
        for name, axis in {unit.reads[0]: axis_of_inputs(unit) for unit in corrected}.items():
            taps.setdefault(name, []).append(ChannelMeans(axis))
    if params.for_cpu == "any" and placement.dtype == "uint8" and not params.reduce_range:
        limited = [unit for unit in placement.units if unit.weight is not None]
        for name, axis in {unit.reads[0]: axis_of_inputs(unit) for unit in limited}.items():
            taps.setdefault(name, []).append(ChannelExtremes(axis))
    return dict(taps)


def _range(observers: Sequence[Observer], method: str, levels: int) -> tuple[float, float]:
    """Return the range of an activation: mse by its rows where it has some, else by its histogram."""
    histogram, *others = observers
    assert isinstance(histogram, Histogram)
    if method == "mse":
        for other in others:
            if isinstance(other, RowSample):
                return weighted_mse_range(other.rows(), histogram, levels)
    return find_range(histogram, method.removeprefix("plain "), levels)
