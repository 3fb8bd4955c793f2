"""Channel equalization: the channels of a tensor made to reach equally far, by the weights before and behind it.

A grid has one step for all channels, so a channel that reaches a tenth as far as another has 25 integers. The products
that make a tensor divide each channel by s, which their scale per channel takes without loss, and those that read it
multiply by s (Nagel et al. 2019, section 4.1; channel_groups.py). Nothing is added to the graph.

A large s makes weights behind uneven instead. Which power of the reach serves best follows from the error of rounding
in both places, in the result of the products that read the tensor:

    of the tensor   step^2 / 12 * sum of W^2                 step = reach / 255
    of the weights  step^2 / 12 * sum of E[x^2], per channel step = largest |W| / 127
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
from onnxport.quantize.placement import Placement
from onnxport.quantize.tensor_summary import TensorSummary
from onnxport.validate.translation.channel_factors import ChannelDivider

# A channel's reach ends after so many of its root mean squares: the best end for a normal distribution in 8 bits.
_DEVIATIONS = 4.0
# The least reach, as a share of the largest: a channel that the samples do not excite gets no factor without limit.
_LEAST_REACH = 0.01
_POWERS = (0.25, 0.5, 0.75, 1.0)
# What is gained at least, dB in the error of a group.
_LEAST_GAIN = 0.2
_STEPS, _WEIGHT_STEPS = 255, 127


@dataclass(frozen=True)
class Spread:
    """What the samples tell of a tensor's channels: ends that matter, and mean squares; float64[channels]."""

    low: Array
    high: Array
    squares: Array

    @classmethod
    def of(cls, seen: TensorSummary, bounds: tuple[float, float] | None) -> Spread:
        """Return the ends between `bounds`, and none further than values of that strength deserve.

        Args:
            seen: with rows and the extremes of channels.
        """
        assert seen.extremes is not None
        low, high = (np.asarray(each, np.float64) for each in seen.extremes)
        rows = seen.rows
        rows = np.zeros((0, len(low))) if rows is None or not rows.size else rows
        means = np.square(rows, dtype=np.float64).sum(axis=0) / max(len(rows), 1)
        limit = _DEVIATIONS * np.sqrt(means)
        if bounds is not None:
            low, high = np.maximum(low, bounds[0]), np.minimum(high, bounds[1])
        return cls(np.clip(low, -limit, 0.0), np.clip(high, 0.0, limit), means)

    @property
    def reach(self) -> Array:
        """The largest magnitude of each channel as a share of the largest."""
        reach = np.maximum(-self.low, self.high)
        return np.asarray(np.maximum(reach / (reach.max(initial=0.0) or 1.0), _LEAST_REACH))


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
    spreads: Mapping[str, Spread],
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


def _choose(group: ChannelGroup, placement: Placement, spreads: Mapping[str, Spread]) -> Array | None:
    return choose_factors(group, {name: spreads[name] for name in tensors_with_grids(group, placement)})


def choose_factors(group: ChannelGroup, spreads: Mapping[str, Spread]) -> Array | None:
    """Return what to divide each channel by, float32; None where it gains too little."""
    read = _read(group)
    per_channel = [_by_channel(each, group.channels) for name, each in spreads.items() if name in read]
    if not per_channel:
        return None
    reach = np.max([each.reach for each in per_channel], axis=0)
    errors = {power: _error(group, spreads, reach**power) for power in (0.0, *_POWERS)}
    best = min(errors, key=lambda power: errors[power])
    if errors[best] * 10 ** (_LEAST_GAIN / 10) > errors[0.0] or errors[0.0] == 0:
        return None
    return round_factors(reach**best)


def _read(group: ChannelGroup) -> set[str]:
    """Return the tensors of a group that products read."""
    return {node.inputs[0].name or "" for node, _ in group.consumers if node.inputs[0] is not None}


def _by_channel(spread: Spread, channels: int) -> Spread:
    """Return what a tensor behind a Flatten tells of the channels before it."""
    low, high, squares = (each.reshape(channels, -1) for each in (spread.low, spread.high, spread.squares))
    return Spread(low.min(axis=1), high.max(axis=1), squares.mean(axis=1))


def _error(group: ChannelGroup, spreads: Mapping[str, Spread], factors: Array) -> float:
    """Return the error of rounding a group's tensors and the weights that read them, as a share of the results."""
    read = _read(group)
    # A tensor that an operator between products reads: the next one has its error, too.
    between = math.fsum(_step(each, factors) ** 2 for name, each in spreads.items() if name not in read)
    found = []
    for node, repeats in group.consumers:
        spread = None if node.inputs[0] is None else spreads.get(node.inputs[0].name or "")
        if spread is None:
            continue
        scaled = np.repeat(factors, repeats)
        weight = _rows(node)  # [results, inputs of a group, taps]
        groups = len(scaled) // weight.shape[1]
        by_row, squares = (
            np.repeat(each.reshape(groups, 1, -1), len(weight) // groups, axis=1).reshape(weight.shape[:2])
            for each in (scaled, spread.squares)
        )
        changed = weight * by_row[:, :, None]
        of_tensors = (_step(spread, scaled) ** 2 + between) * np.square(changed).sum()
        steps = np.abs(changed).max(axis=(1, 2)) / _WEIGHT_STEPS
        of_weight = np.square(steps) @ (squares / np.square(by_row)).sum(axis=1) * weight.shape[2]
        signal = (np.square(weight).sum(axis=2) * squares).sum()
        found.append(float((of_tensors + of_weight) / 12 / signal) if signal else 0.0)
    return math.fsum(found)


def _step(spread: Spread, factors: Array) -> float:
    """Return the step of a tensor's grid, its channels divided."""
    by = np.repeat(factors, len(spread.low) // len(factors))
    return float((spread.high / by).max() - (spread.low / by).min()) / _STEPS


def _rows(node: ir.Node) -> Array:
    """Return a product's weight as float64[results, inputs of a group, taps]."""
    weight = array_of(node.inputs[1]).astype(np.float64)
    if node.op_type == "Conv":
        return weight.reshape(*weight.shape[:2], -1)
    return (weight if node.attributes.get_int("transB", 0) else weight.T)[:, :, None]


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
