"""Integers of 8 bits, 16 for activations on request: settle, place, calibrate, round, write."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxport.errors import CannotConvertError, Refusal
from onnxport.model import Model
from onnxport.quantize import biases, qdq
from onnxport.quantize.grids import Floats, Grid, QuantizedWeight, activation_grid, weight_grid
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import Placement, Weight, place
from onnxport.quantize.setting import Quantized, Setting
from onnxport.quantize.settling import INT16_OPSET, OLDEST_OPSET, Settled, settled

Ranges = Mapping[str, tuple[float, float]]


def quantize(model: Model, params: QuantizeParams, setting: Setting) -> Quantized:
    """See setting.Quantization."""
    opset = INT16_OPSET if params.precision == "int16x8" or params.activations == "s16" else OLDEST_OPSET
    with setting.watch.phase("settle"):
        graph = settled(model, setting.folder, opset=opset)
        placement = place(graph.model.graph, params)
        _check_worth(model, placement)
    with setting.watch.phase("calibrate"):
        ranges = _ranges(graph, placement, params, setting)
    with setting.watch.phase("round"):
        grids = activation_grids(placement, ranges)
        weights = rounded_weights(graph.model, placement, grids)
    with setting.watch.phase("write"):
        written = qdq.write(graph.model, placement, grids, weights, {})
    return Quantized(written, graph.notes, {"islands": dict(placement.floats)})


def activation_grids(placement: Placement, ranges: Ranges) -> dict[str, Grid]:
    """The grid of every activation: what its operator tells, else what holds the ranges of all that share it."""
    grids: dict[str, Grid] = {}
    for group in placement.groups:
        fixed = placement.fixed.get(group[0])
        if fixed is not None:
            low, high = fixed.low, fixed.high
        else:
            limited = [_limited(ranges[name], placement.bounds.get(name)) for name in group]
            low, high = min(low for low, _ in limited), max(high for _, high in limited)
        grids |= dict.fromkeys(group, activation_grid(low, high, placement.dtype_of(group[0])))
    return grids


def rounded_weights(
    model: Model, placement: Placement, grids: Mapping[str, Grid]
) -> dict[Weight, QuantizedWeight]:
    """Every weight rounded to the nearest on the grid of its largest magnitudes."""
    found = {}
    for weight, units in placement.weights.items():
        values = values_of(model, weight)
        grid = weight_grid(values, weight.axis)
        for unit in units:
            bias = qdq.bias_of(model.graph, unit)
            if bias is not None:
                grid = biases.holding(grid, bias, grids[unit.reads[0]])
        found[weight] = QuantizedWeight(grid.quantized(values), grid)
    return found


def values_of(model: Model, weight: Weight) -> Floats:
    """A weight's float32 values."""
    tensor = model.graph.initializers[weight.tensor].const_value
    assert tensor is not None
    return tensor.numpy()


def _limited(span: tuple[float, float], bounds: tuple[float, float] | None) -> tuple[float, float]:
    if bounds is None:
        return span
    return max(span[0], bounds[0]), min(span[1], bounds[1])


def _check_worth(model: Model, placement: Placement) -> None:
    """Refuses a model of which nothing becomes integers."""
    if placement.units:
        return
    ops = {node.name or "": node.op_type for node in model.graph}
    refusals = [Refusal(ops.get(name, ""), name, why) for name, why in placement.floats.items()]
    raise CannotConvertError(f"nothing of {model.path} can be quantized", refusals=refusals)


def _ranges(graph: Settled, placement: Placement, params: QuantizeParams, setting: Setting) -> Ranges:
    """Stand-in until the calibration room is there: min and max over all samples."""
    import onnx
    import onnxruntime

    proto = onnx.load(graph.path)
    names = [name for name in placement.observed if name not in {v.name for v in graph.model.graph.inputs}]
    present = {value.name for value in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    spans: dict[str, tuple[float, float]] = {}
    for number, file in enumerate(setting.calibration):
        feeds = dict(file.load().feeds)
        arrays = dict(zip(names, session.run(names, feeds), strict=True)) | feeds
        for name in placement.observed:
            low, high = float(np.min(arrays[name])), float(np.max(arrays[name]))
            old = spans.get(name, (low, high))
            spans[name] = min(low, old[0]), max(high, old[1])
        setting.watch.progress(number + 1, len(setting.calibration))
    return spans
