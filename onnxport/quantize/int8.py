"""INT8, and INT16 activations on request: simplify, place, calibrate, round, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.core.memory import return_freed_memory
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote, round_means
from onnxport.quantize import cpu_safe, qdq, range_choice
from onnxport.quantize.accuracy import bias_correction
from onnxport.quantize.candidate_score import Scorer, select_best
from onnxport.quantize.contract import QuantizationInputs, Quantized
from onnxport.quantize.eligibility import check_float, excluded_nodes
from onnxport.quantize.float_graph import INT16_OPSET, OLDEST_OPSET, FloatGraph, simplify_for_quantization
from onnxport.quantize.grids import (
    Floats,
    Grid,
    QuantizedWeight,
    activation_grid,
    weight_grid,
    widen_for_bias,
)
from onnxport.quantize.measurement import Measurements, Ranges
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import Placement, Weight, place
from onnxport.quantize.placement.channels import axis_of_results
from onnxport.quantize.placement.operators import PRODUCTS
from onnxport.quantize.search import MixedPrecisionSpace, restore_for_budgets
from onnxport.quantize.survey import PlannedGraph, Survey, survey

# A note tells so many kinds of nodes that stay in float; facts["islands"] has them all.
_TOLD = 4
# Types of activations that ONNX Runtime is slow with.
_SLOW = {
    "int8": "on x86 ONNX Runtime computes much of it in float, since its kernels there take unsigned activations: "
    "--activations u8 is faster; on ARM, and for TFLite, both are the same",
    "int16": "ONNX Runtime has no kernels for 16-bit activations: it computes in float what they stand for, more "
    "slowly than the float model; LiteRT has kernels for them, but on x86 they are slower than its float ones",
}


def quantize(model: Model, params: QuantizeParams, setting: QuantizationInputs) -> Quantized:
    """Quantize `model`; see contract.Quantization.

    Raises:
        CannotConvertError: the model is quantized already, or nothing in it can be.
        UsageError: --exclude names what the model does not have.
        InputError: a sample, or an activation on one, that cannot be calibrated on.
    """
    with setting.watch.phase("simplify"):
        placed = plan_graph(model, params, setting)
        return_freed_memory()
    with setting.watch.phase("calibrate"):
        found = survey(model, placed, params, setting)
        placed, candidates = found.planned, found.candidates
        return_freed_memory()
    build = partial(build_model, placed.graph, placement=placed.placement, is_reduced=params.reduce_range)
    name, chosen, made = _choose(model, found, build, params, setting)
    write = partial(build_model, placed.graph, candidates[name], is_reduced=params.reduce_range)
    if setting.validation is not None and setting.validation.budget:
        searched = _search_within_budgets(model, placed, write, setting)
        return replace(searched, notes=(*searched.notes, *chosen))
    with setting.watch.phase("quantize"):
        made = write(placed.placement) if made is None else made
    notes = (*placed.graph.notes, *coverage_notes(placed), *chosen)
    return Quantized(made, notes, coverage_facts(placed.placement))


def _choose(
    model: Model,
    found: Survey,
    build: Callable[[Measurements], Model],
    params: QuantizeParams,
    setting: QuantizationInputs,
) -> tuple[str, tuple[str, ...], Model | None]:
    """Return the name of the candidate to take, a sentence for the user, and its model where one was built."""
    candidates, placement = found.candidates, found.planned.placement
    first, *others = candidates
    if not others:
        return first, (), None
    if params.method == "auto":
        samples = setting.held_back or setting.calibration
        with setting.watch.phase("choose"), Scorer(model, samples) as scorer:
            choice = select_best(candidates, build, scorer, setting.watch.progress)
        return choice.name, (choice.note,), None
    (other,) = others
    # Weights of --for-cpu any saturate on no CPU, on these very samples.
    saturates = params.for_cpu != "any" or placement.dtype != "uint8"
    with setting.watch.phase("choose"):
        default, candidate = build(candidates[first]), build(candidates[other])
        lead = range_choice.measure_lead(
            found.answers, default, candidate, setting.calibration, saturates=saturates
        )
    if not lead.is_clear:
        return first, (), default
    note = (
        f"ranges are percentiles: on {range_choice.SAMPLES} samples their error is {lead.mean:.1f} dB lower"
    )
    return other, (note,), candidate


def _search_within_budgets(
    model: Model, placed: PlannedGraph, write: Callable[[Placement], Model], setting: QuantizationInputs
) -> Quantized:
    """Return the model with the least higher precision that meets the budgets, or the best one reached."""
    space = MixedPrecisionSpace(placed.placement, write)
    with (
        setting.watch.phase("search"),
        Scorer(model, setting.held_back or setting.calibration, setting.validation) as scorer,
    ):
        found = restore_for_budgets(space, scorer, setting.watch.progress)
    final = replace(placed, placement=space.plan({each.unit: each.level for each in found.restored}))
    older, newer = placed.graph.model.opset, found.model.opset
    lifted = (f"lifted from opset {older} to {newer}: 16-bit activations need it",) if newer > older else ()
    notes = (*placed.graph.notes, *lifted, *coverage_notes(final), *found.notes)
    return Quantized(found.model, notes, coverage_facts(final.placement) | found.facts)


def build_model(
    graph: FloatGraph, seen: Measurements, placement: Placement, *, is_reduced: bool = False
) -> Model:
    """Build the model of a plan; `is_reduced`: with weights of 7 bits."""
    grids = activation_grids(placement, seen.ranges)
    rounded = round_weights(graph.model, placement, grids, seen.maxima, is_reduced=is_reduced)
    means = {name: round_means(each) for name, each in seen.means.items()}
    corrections = correct_biases(graph.model, placement, rounded, means)
    written = qdq.write(graph.model, placement, grids, rounded, corrections)
    note = QuantizationNote(
        _find_declared_ends(placement, seen.ranges, grids),
        {unit.node: means[unit.reads[0]] for unit in placement.units if unit.node in corrections},
        graph.factors,
    )
    written.ir.metadata_props[NOTE_KEY] = note.to_json()
    return written


def _find_declared_ends(placement: Placement, ranges: Ranges, grids: Mapping[str, Grid]) -> Ranges:
    """Return the ends that grids have to reach: those chosen, within bounds and what `Grid.align_to` leaves."""
    shifted = {
        name
        for group in placement.groups
        if any(placement.affine[each][1] for each in group)
        for name in group
    }
    found = {}
    for name in placement.activations:
        if name in ranges:
            ends = _within(ranges[name], placement.bounds.get(name))
            found[name] = _within(ends, (grids[name].low, grids[name].high) if name in shifted else None)
    return found


def _within(ends: tuple[float, float], bounds: tuple[float, float] | None) -> tuple[float, float]:
    return ends if bounds is None else (max(ends[0], bounds[0]), min(ends[1], bounds[1]))


def plan_graph(model: Model, params: QuantizeParams, setting: QuantizationInputs) -> PlannedGraph:
    """Return the float graph and its plan."""
    check_float(model)
    wide = params.precision == "int16x8" or params.activations == "s16"
    graph = simplify_for_quantization(model, setting.folder, opset=INT16_OPSET if wide else OLDEST_OPSET)
    excluded = excluded_nodes(model, graph.model, params.exclude)
    placement = place(graph.model.graph, params, excluded=excluded)
    if not placement.units:
        raise _nothing_to_quantize(model, graph.model, placement)
    return PlannedGraph(graph, placement, excluded)


def activation_grids(placement: Placement, ranges: Ranges) -> dict[str, Grid]:
    """Return the grid of every activation: the operator's own, else one that covers all ranges of its group."""
    grids: dict[str, Grid] = {}
    for group in placement.groups:
        fixed = placement.fixed.get(group[0])
        ends = [(fixed.low, fixed.high)] if fixed else [_range(name, placement, ranges) for name in group]
        # 0 of every one of them has to be on the grid.
        zeros = [-shift / factor for factor, shift in map(placement.affine.__getitem__, group)]
        low, high = min(*(low for low, _ in ends), *zeros), max(*(high for _, high in ends), *zeros)
        grid = activation_grid(low, high, placement.dtype_of(group[0]))
        if fixed is None and any(zeros):
            grid = grid.align_to(max(map(abs, zeros)))
        grids |= {name: grid.moved(*placement.affine[name]) for name in group}
    return grids


def _range(name: str, placement: Placement, ranges: Ranges) -> tuple[float, float]:
    """Return an activation's range in units of the first of its group."""
    factor, shift = placement.affine[name]
    (low, high), bounds = ranges[name], placement.bounds.get(name)
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return (low - shift) / factor, (high - shift) / factor


def round_weights(
    model: Model,
    placement: Placement,
    grids: Mapping[str, Grid],
    maxima: Mapping[str, Array],
    *,
    is_reduced: bool = False,
) -> dict[Weight, QuantizedWeight]:
    """Round every weight to the grid of its largest magnitudes.

    Args:
        maxima: see Measurements; sums of products with these activations saturate on no CPU.
        is_reduced: to 7 bits.
    """
    found, nodes = {}, {node.name: node for node in model.graph}
    for weight, units in placement.weights.items():
        values = weight_values(model, weight)
        grid = weight_grid(values, weight.axis)
        grid = cpu_safe.reduce_grid(grid) if is_reduced else grid
        for unit in units:
            node, data = nodes[unit.node], grids[unit.reads[0]]
            if unit.reads[0] in maxima and data.dtype == "uint8" and cpu_safe.can_saturate(node, values):
                largest = cpu_safe.largest_integers(maxima[unit.reads[0]], data)
                grid = cpu_safe.widen_grid(grid, values, node, largest)
            bias = qdq.read_bias(model.graph, unit)
            if bias is not None:
                grid = widen_for_bias(grid, bias, data)
        found[weight] = QuantizedWeight(grid.quantized(values), grid)
    return found


def correct_biases(
    model: Model, placement: Placement, weights: Mapping[Weight, QuantizedWeight], means: Mapping[str, Array]
) -> dict[str, Floats]:
    """Return corrected biases by product name, for all whose operand's means are known."""
    nodes = {node.name: node for node in model.graph}
    found = {}
    for unit in placement.units:
        if unit.weight is None or unit.bias is None or unit.reads[0] not in means:
            continue
        own = qdq.read_bias(model.graph, unit)
        values = weight_values(model, unit.weight)
        node = nodes[unit.node]
        axis, taps = axis_of_results(node), bias_correction.find_taps_on_data(node)
        bias = np.zeros(values.shape[axis], np.float32) if own is None else own
        found[unit.node] = bias_correction.correct_bias(
            bias, values, weights[unit.weight], means[unit.reads[0]], axis, taps
        )
    return found


def weight_values(model: Model, weight: Weight) -> Floats:
    """Return a weight's float32 values."""
    tensor = model.graph.initializers[weight.tensor].const_value
    assert tensor is not None
    return tensor.numpy()


# ---- what is said of it


def coverage_notes(placed: PlannedGraph) -> tuple[str, ...]:
    """Return notes: how much computes in integers, what does not, and why."""
    nodes = {node.name or "": node.op_type for node in placed.graph.model.graph}
    floats = placed.placement.floats
    inside = sum(unit.op in PRODUCTS for unit in placed.placement.units)
    outside = sum(nodes.get(name) in PRODUCTS for name in floats)
    notes = [f"{inside} of {inside + outside} convolutions and matrix products are quantized"]
    if placed.placement.dtype in _SLOW:
        notes.append(_SLOW[placed.placement.dtype])
    kinds = Counter((nodes.get(name, ""), why) for name, why in floats.items())
    if kinds:
        told = [f"{count} {op} ({why})" for (op, why), count in kinds.most_common(_TOLD)]
        more = f", and {sum(dict(kinds.most_common()[_TOLD:]).values())} more" if len(kinds) > _TOLD else ""
        notes.append(f"{len(floats)} nodes stay in float: {', '.join(told)}{more}")
    return tuple(notes)


def coverage_facts(placement: Placement) -> dict[str, Any]:
    """Return the plan in figures, and every float node with its reason."""
    return {"integer_nodes": len(placement.units), "islands": dict(placement.floats)}


def _nothing_to_quantize(model: Model, settled_model: Model, placement: Placement) -> CannotConvertError:
    ops = {node.name: node.op_type for node in settled_model.graph}
    return CannotConvertError(
        f"nothing in {model.path} can be quantized",
        refusals=[Refusal(ops[name], name, why) for name, why in placement.floats.items()],
        why="" if placement.floats else "it has no node that computes floats",
        fix="--fp16 or --int8-weights make it smaller",
    )
