"""One pass over the samples, and a plan whose channels are scaled by what it tells.

Scaling channels changes the numbers that the samples give in a known way, so one pass tells both how to scale them and
the ranges afterwards. Histograms cannot be divided: methods that read those need a second pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from onnxport.core.arrays import Array
from onnxport.core.memory import return_freed_memory
from onnxport.formats.model import Model
from onnxport.quantize import range_choice
from onnxport.quantize.accuracy import equalization
from onnxport.quantize.accuracy.channel_groups import ChannelGroup
from onnxport.quantize.accuracy.channel_scales import ScalableTensors, find_scalable_tensors, scale_channels
from onnxport.quantize.accuracy.rounding_error import Spread
from onnxport.quantize.accuracy.rows import RowSample
from onnxport.quantize.calibration import Resources, calibrate
from onnxport.quantize.calibration.answers import Answers
from onnxport.quantize.calibration.observers import ChannelExtremes, Histogram, Observer
from onnxport.quantize.contract import QuantizationInputs
from onnxport.quantize.float_graph import FloatGraph
from onnxport.quantize.measurement import Measurements, choose_observers, read_measurements
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import Placement, place
from onnxport.quantize.tensor_summary import Summaries, TensorSummary
from onnxport.validate.translation.channel_factors import ChannelDivider

# Methods whose ranges follow from rows and extremes.
_OF_ROWS = frozenset(("mse", "minmax"))
_IMAGES = 1  # the axis of channels that are scaled


@dataclass(frozen=True)
class PlannedGraph:
    """A float graph and its quantization plan."""

    graph: FloatGraph
    placement: Placement
    excluded: frozenset[str]  # nodes that the user keeps in float
    even: frozenset[str] = frozenset()  # tensors whose channels were scaled to reach equally far


@dataclass(frozen=True)
class Survey:
    """What the samples tell.

    Attributes:
        planned: the plan, with its channels scaled.
        candidates: the measurements of each method that is tried.
        answers: the float model's for `range_choice.measure_lead`, by output; empty where nothing is compared.
    """

    planned: PlannedGraph
    candidates: Mapping[str, Measurements]
    answers: Mapping[str, Answers] = field(default_factory=dict)


def survey(
    model: Model, planned: PlannedGraph, params: QuantizeParams, setting: QuantizationInputs
) -> Survey:
    """Run the samples, and scale channels by what they tell.

    Raises what `calibrate` raises.
    """
    scales = not params.per_tensor and planned.placement.dtype != "int16"
    suffices = not scales or params.method in _OF_ROWS
    graph, placement = planned.graph.model.graph, planned.placement
    wanted = choose_observers(graph, placement, params, len(setting.calibration)) if suffices else {}
    groups, tensors = list[ChannelGroup](), ScalableTensors({}, {})
    if scales:
        groups = equalization.groups_to_equalize(graph, placement, model.graph)
        tensors = find_scalable_tensors(graph, placement)
        _add_observers(wanted, groups, tensors, placement, len(setting.calibration))
    if params.method == "mse" and range_choice.is_affordable(planned.graph, setting.calibration):
        _add_answers(wanted, planned.graph, len(setting.calibration))
    seen, answers = _run(planned, wanted, params, setting) if wanted else ({}, {})
    if groups:
        planned, seen = _equalize(model, planned, groups, seen, params, setting)
    if scales:
        planned, seen = _scale(planned, seen, params)
    graph = planned.graph.model.graph
    if not suffices:
        if planned.even or planned.graph.factors:
            planned.graph.model.save(planned.graph.path)
        wanted = choose_observers(graph, planned.placement, params, len(setting.calibration))
        seen, _ = _run(planned, wanted, params, setting)
    found = read_measurements(
        graph, planned.placement, params, seen, even=planned.even, compares=bool(answers)
    )
    return Survey(planned, found, answers)


def _run(
    planned: PlannedGraph,
    wanted: Mapping[str, Sequence[Observer]],
    params: QuantizeParams,
    setting: QuantizationInputs,
) -> tuple[Summaries, Mapping[str, Answers]]:
    resources = Resources.of(params)
    seen = calibrate(
        planned.graph.path, wanted, setting.calibration, watch=setting.watch, resources=resources
    )
    answers = {
        name: each for name, observers in seen.items() for each in observers if isinstance(each, Answers)
    }
    # Rows are put together here: those of one tensor after another, or memory would hold all twice.
    summaries = {name: TensorSummary.of(seen.pop(name)) for name in list(seen)}
    return_freed_memory()
    return summaries, answers


def _add_answers(wanted: dict[str, list[Observer]], graph: FloatGraph, samples: int) -> None:
    """Keep the outputs on the samples that decide between two ranges; 16-bit activations have one."""
    if any(isinstance(each, RowSample) for observers in wanted.values() for each in observers):
        numbers = range_choice.choose_samples(samples)
        for name in range_choice.outputs_to_compare(graph):
            wanted.setdefault(name, []).append(Answers(numbers))


def _add_observers(
    wanted: dict[str, list[Observer]],
    groups: Sequence[ChannelGroup],
    tensors: ScalableTensors,
    placement: Placement,
    samples: int,
) -> None:
    """Observe what a tensor needs to be divided: extremes of its channels, and rows in place of a histogram."""
    grouped = [name for group in groups for name in equalization.tensors_with_grids(group, placement)]
    for name in dict.fromkeys((*grouped, *tensors.operands, *tensors.results)):
        own = wanted.setdefault(name, [])
        if not any(isinstance(each, ChannelExtremes) for each in own):
            own.append(ChannelExtremes(_IMAGES))
        if not any(isinstance(each, RowSample) for each in own):
            own.append(RowSample(_IMAGES, samples))
        # The channels' extremes are the tensor's, too.
        wanted[name] = [each for each in own if not isinstance(each, Histogram) or each.elements]


def _equalize(
    model: Model,
    planned: PlannedGraph,
    groups: Sequence[ChannelGroup],
    seen: Summaries,
    params: QuantizeParams,
    setting: QuantizationInputs,
) -> tuple[PlannedGraph, Summaries]:
    """Make channels reach equally far by the weights around them, and plan again; see equalization.py."""
    graph, placement = planned.graph.model.graph, planned.placement
    names = {name for group in groups for name in equalization.tensors_with_grids(group, placement)}
    spreads = {name: Spread.of(seen[name], placement.bounds.get(name)) for name in names}
    shapes = {name: array.shape for name, array in setting.calibration[0].load().feeds.items()}
    divider = partial(ChannelDivider, model, shapes)
    found = equalization.equalize(graph, groups, placement, spreads, divider)
    if not found.factors:
        return planned, seen
    return replace(
        planned,
        graph=replace(planned.graph, factors=found.factors),
        placement=place(graph, params, excluded=planned.excluded),
    ), _divide(seen, found.divided)


def _scale(planned: PlannedGraph, seen: Summaries, params: QuantizeParams) -> tuple[PlannedGraph, Summaries]:
    """Scale channels that reach far less than others, and plan again; see channel_scales.py."""
    graph = planned.graph.model.graph
    tensors = find_scalable_tensors(graph, planned.placement)
    extremes = {
        name: each.extremes
        for name in (*tensors.operands, *tensors.results)
        if (each := seen[name]).extremes is not None
    }
    found = scale_channels(graph, tensors, planned.placement, extremes)
    if not found.reach:
        return planned, seen
    plan = place(graph, params, excluded=planned.excluded)
    # Behind a multiplication no reader tells any more which values it does not distinguish.
    units = [
        replace(unit, bounds=(-found.reach[unit.writes[0]], found.reach[unit.writes[0]]))
        if unit.bounds is None and unit.writes and unit.writes[0] in found.reach
        else unit
        for unit in plan.units
    ]
    scaled = replace(planned, placement=replace(plan, units=tuple(units)), even=frozenset(found.reach))
    return scaled, _divide(seen, found.divided)


def _divide(seen: Summaries, divided: Mapping[str, tuple[str, Array]]) -> Summaries:
    """Return the summaries with those of new tensors instead of old ones.

    Args:
        divided: each new tensor, to the old one and what its channels are divided by.
    """
    changed = {new: seen[old].divided(by) for new, (old, by) in divided.items() if old in seen}
    gone = {old for old, _ in divided.values()}
    return {**{name: each for name, each in seen.items() if name not in gone}, **changed}
