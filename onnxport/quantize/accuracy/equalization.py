"""Channel equalization: the channels of a tensor made to reach equally far, by the weights before and behind it.

A grid has one step for all channels, so a channel that reaches a tenth as far as another has 25 integers. The products
that make a tensor divide each channel by s, which their scale per channel takes without loss, and those that read it
multiply by s (Nagel et al. 2019, section 4.1; channel_groups.py). Nothing is added to the graph.

A large s makes weights behind uneven instead. Which power of the reach serves best follows from the error of rounding
in both places (rounding_error.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.quantization_note import round_factors
from onnxport.quantize.accuracy.channel_groups import ChannelGroup, find_channel_groups
from onnxport.quantize.accuracy.product_constants import array_of, replace_constant
from onnxport.quantize.accuracy.rounding_error import ProductWeight, Spread
from onnxport.quantize.placement import Placement
from onnxport.validate.translation.channel_factors import ChannelDivider

_POWERS = (0.25, 0.5, 0.75, 1.0)
# What is gained at least, dB in the error of a group.
_LEAST_GAIN = 0.2


def groups_to_equalize(graph: ir.Graph, placement: Placement, original: ir.Graph) -> list[ChannelGroup]:
    """Return the groups with a tensor that products read in integers.

    The tensors that products make have to be in `original` under the same names: a proof says by these names what is
    scaled.
    """
    known = {value.name for node in original for value in node.outputs}
    return [
        group
        for group in find_channel_groups(graph)
        if any(node.name in placement.unit for node, _ in group.consumers)
        and all(node.outputs[0].name in known for node in group.producers)
    ]


def tensors_with_grids(group: ChannelGroup, placement: Placement) -> list[str]:
    """Return the tensors of a group that are rounded."""
    return [value.name or "" for value in group.values if value.name in placement.affine]


@dataclass(frozen=True)
class Equalized:
    """The changes that equalization made to a graph.

    Attributes:
        factors: the name of each product's result in the source, to what each of its channels was divided by: float32.
        divided: each new tensor, to its old name and what its channels were divided by.
    """

    factors: Mapping[str, Array] = field(default_factory=dict)
    divided: Mapping[str, tuple[str, Array]] = field(default_factory=dict)


def equalize(
    graph: ir.Graph,
    groups: Sequence[ChannelGroup],
    placement: Placement,
    spreads: Mapping[str, Spread | None],
    divider: Callable[[], ChannelDivider],
) -> Equalized:
    """Change the weights of `graph`; tensors get new names where they hold other numbers.

    Args:
        divider: returns the proof's own divider of the source: what it does not follow is left alone.
    """
    chosen = [
        (group, {node.outputs[0].name or "": factors for node in group.producers})
        for group in groups
        if (factors := _choose(group, placement, spreads)) is not None
    ]
    if not chosen:
        return Equalized()
    proof = divider()
    if proof.divide(_merge(chosen)) is None:
        chosen = [each for each in chosen if proof.divide(each[1]) is not None]
    divided = dict[str, tuple[str, Array]]()
    for group, named in chosen:
        factors = next(iter(named.values()))
        before = [value.name or "" for value in group.values]
        _scale(graph, group, factors)
        after = [value.name or "" for value in group.values]
        divided |= {new: (old, factors) for old, new in zip(before, after, strict=True)}
    return Equalized(_merge(chosen), divided)


def _merge(chosen: Sequence[tuple[ChannelGroup, Mapping[str, Array]]]) -> dict[str, Array]:
    return {name: factors for _, named in chosen for name, factors in named.items()}


def _choose(group: ChannelGroup, placement: Placement, spreads: Mapping[str, Spread | None]) -> Array | None:
    rounded = {name: spreads[name] for name in tensors_with_grids(group, placement)}
    known = {name: spread for name, spread in rounded.items() if spread is not None}
    return choose_factors(group, known) if len(known) == len(rounded) else None


def choose_factors(group: ChannelGroup, spreads: Mapping[str, Spread]) -> Array | None:
    """Return what to divide each channel by, float32; None where it gains too little."""
    read = _read(group)
    reaches = [each.reach_of(group.channels) for name, each in spreads.items() if name in read]
    if not reaches:
        return None
    reach = np.max(reaches, axis=0)
    weights = {node: ProductWeight.of(node) for node, _ in group.consumers}
    errors = {power: _error(group, spreads, weights, reach**power) for power in (0.0, *_POWERS)}
    best = min(errors, key=lambda power: errors[power])
    if errors[best] * 10 ** (_LEAST_GAIN / 10) > errors[0.0] or errors[0.0] == 0:
        return None
    return round_factors(reach**best)


def _read(group: ChannelGroup) -> set[str]:
    """Return the tensors of a group that products read."""
    return {node.inputs[0].name or "" for node, _ in group.consumers if node.inputs[0] is not None}


def _error(
    group: ChannelGroup,
    spreads: Mapping[str, Spread],
    weights: Mapping[ir.Node, ProductWeight],
    factors: Array,
) -> float:
    """Return the error of rounding a group's tensors and the weights that read them, as a share of the results."""
    read, found = _read(group), []
    rounding = {name: each.measure_rounding(factors) for name, each in spreads.items()}
    # A tensor that an operator between products reads: the next one has its error, too.
    between = sum(
        (each.reshape(len(factors), -1).mean(axis=1) for name, each in rounding.items() if name not in read),
        np.zeros(len(factors)),
    )
    for node, repeats in group.consumers:
        name = "" if node.inputs[0] is None else node.inputs[0].name or ""
        if name in spreads:
            own = rounding[name] + np.repeat(between, repeats)
            by, squares = np.repeat(factors, repeats), spreads[name].squares
            found.append(weights[node].measure_error(by, own, squares))
    return math.fsum(found)


def _scale(graph: ir.Graph, group: ChannelGroup, factors: Array) -> None:
    for node in group.producers:
        weight = array_of(node.inputs[1])
        is_turned = bool(node.attributes.get_int("transB", 0))
        axis = 0 if node.op_type == "Conv" or is_turned else 1
        shape = [-1 if each == axis else 1 for each in range(weight.ndim)]
        replace_constant(graph, node, 1, weight / factors.reshape(shape))
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = np.broadcast_to(array_of(node.inputs[2]).reshape(-1), factors.shape)
            replace_constant(graph, node, 2, bias / factors)
    for node, repeats in group.consumers:
        weight = array_of(node.inputs[1])
        scaled = np.repeat(factors, repeats)
        if node.op_type == "Conv":
            groups = len(scaled) // weight.shape[1]
            rows = np.repeat(scaled.reshape(groups, 1, -1), len(weight) // groups, axis=1)
            by = rows.reshape(weight.shape[:2])[:, :, None, None]
        else:
            by = scaled[None, :] if node.attributes.get_int("transB", 0) else scaled[:, None]
        replace_constant(graph, node, 1, weight * by)
    for value in group.values:
        value.name = f"{value.name}.by_channel"
