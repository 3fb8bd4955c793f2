"""Carry a demand on a node's output back to its inputs, through operators that can be inverted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.demands.demand import Demand
from onnxport.samples.shapes.analysis import Site
from onnxport.samples.value_uses import constant

# From the demand on the output to that on one input; None for none.
Transfer = Callable[[Site, Demand, int], Demand | None]

# Operators that keep the order of elements, and so the structure of a tensor.
_SAME_ORDER = frozenset("Cast Identity Squeeze Unsqueeze Dropout CastLike".split())
# Operators that keep the values of their first input, or of all (Concat).
_SAME_VALUES = frozenset(
    "Reshape Transpose Slice Flatten Expand Tile Split Gather Pad GatherElements GatherND DepthToSpace SpaceToDepth "
    "Floor Ceil Round ReduceMax ReduceMin ReduceMean MaxPool AveragePool Trilu".split()
)


def demand_before(site: Site, demand: Demand, index: int) -> Demand | None:
    """Return what a demand on the node's output demands of input `index`."""
    op = site.node.op_type
    if op in _SAME_ORDER:
        return demand if index == 0 else None
    if op in _SAME_VALUES:
        return _without_structure(demand) if index == 0 else None
    transfer = _TRANSFERS.get(op)
    return None if transfer is None else transfer(site, _without_structure(demand), index)


def _without_structure(demand: Demand) -> Demand:
    return replace(demand, structure="", columns=()) if demand.structure or demand.columns else demand


def _any_input(site: Site, demand: Demand, index: int) -> Demand | None:
    return demand


def _branches(site: Site, demand: Demand, index: int) -> Demand | None:
    return demand if index in (1, 2) else None


def _other(site: Site, index: int) -> Array | None:
    """Return the constant that the input is combined with; None where both vary."""
    inputs = site.node.inputs
    if len(inputs) != 2:
        return None
    other = constant(inputs[1 - index])
    return other if other is not None and other.size and other.dtype.kind in "iuf" else None


def _sum(site: Site, demand: Demand, index: int) -> Demand | None:
    other = _other(site, index)
    if other is not None:
        return _shift(demand, -float(other.max()), -float(other.min()))
    if len(site.node.inputs) != 2:
        return None
    # Halves of the bounds are enough, though more than is needed.
    return replace(demand, low=_half(demand.low), high=_half(demand.high), nonzero=False)


def _half(bound: float) -> float:
    return bound / 2 if math.isfinite(bound) else bound


def _shift(demand: Demand, most: float, least: float) -> Demand | None:
    """Return the demand on x where x - shift is demanded, for shifts of least to most."""
    moved = replace(demand, low=demand.low + least, high=demand.high + most, nonzero=False)
    return None if moved.low > moved.high else moved


def _difference(site: Site, demand: Demand, index: int) -> Demand | None:
    other = _other(site, index)
    if other is None:
        return None
    if index == 0:
        return _shift(demand, float(other.min()), float(other.max()))
    flipped = replace(demand, low=-demand.high, high=-demand.low)
    return _shift(flipped, float(other.min()), float(other.max()))


def _product(site: Site, demand: Demand, index: int) -> Demand | None:
    other = _other(site, index)
    return None if other is None else _scale(demand, other.astype(np.float64))


def _quotient(site: Site, demand: Demand, index: int) -> Demand | None:
    other = _other(site, index)
    if other is None or index == 1 or not np.all(other):
        return None
    return _scale(demand, 1.0 / other.astype(np.float64))


def _scale(demand: Demand, factors: Array) -> Demand | None:
    """Return the demand on x where x times each factor is demanded."""
    low, high = -math.inf, math.inf
    for factor in (float(factors.min()), float(factors.max())):
        if not factor:
            continue
        ends = sorted((demand.low / factor, demand.high / factor))
        low, high = max(low, ends[0]), min(high, ends[1])
    return None if low > high else replace(demand, low=low, high=high, is_index=False)


def _negation(site: Site, demand: Demand, index: int) -> Demand | None:
    return replace(demand, low=-demand.high, high=-demand.low)


def _magnitude(site: Site, demand: Demand, index: int) -> Demand | None:
    return None if math.isinf(demand.high) else Demand(-demand.high, demand.high, node=demand.node)


def _clip(site: Site, demand: Demand, index: int) -> Demand | None:
    """Drop bounds that the clipping keeps anyway."""
    if index:
        return None
    low, high = (
        constant(site.node.inputs[place]) if len(site.node.inputs) > place else None for place in (1, 2)
    )
    least = float(low.min()) if low is not None and low.size else -math.inf
    most = float(high.max()) if high is not None and high.size else math.inf
    for name, bound in (("min", -1), ("max", 1)):
        if name in site.node.attributes:
            number = site.node.attributes[name].as_float()
            least, most = (number, most) if bound < 0 else (least, number)
    return replace(
        demand,
        low=-math.inf if least >= demand.low else demand.low,
        high=math.inf if most <= demand.high else demand.high,
    )


def _rectifier(site: Site, demand: Demand, index: int) -> Demand | None:
    return replace(demand, low=-math.inf) if demand.low <= 0 else demand


def _extremum(site: Site, demand: Demand, index: int) -> Demand | None:
    """Drop the bound that the other operand of Max or Min keeps."""
    other = _other(site, index)
    if other is None:
        return demand
    if site.node.op_type == "Max" and float(other.min()) >= demand.low:
        return replace(demand, low=-math.inf)
    if site.node.op_type == "Min" and float(other.max()) <= demand.high:
        return replace(demand, high=math.inf)
    return demand


def _root(site: Site, demand: Demand, index: int) -> Demand | None:
    low = max(demand.low, 0.0) ** 2
    return replace(demand, low=low, high=demand.high**2 if math.isfinite(demand.high) else math.inf)


def _exponential(site: Site, demand: Demand, index: int) -> Demand | None:
    low = math.log(demand.low) if demand.low > 0 else -math.inf
    if demand.high <= 0:
        return None
    return replace(demand, low=low, high=math.log(demand.high), nonzero=False)


_TRANSFERS: dict[str, Transfer] = {
    "Concat": _any_input,
    "Where": _branches,
    "Add": _sum,
    "Sub": _difference,
    "Mul": _product,
    "Div": _quotient,
    "Neg": _negation,
    "Abs": _magnitude,
    "Clip": _clip,
    "Relu": _rectifier,
    "Max": _extremum,
    "Min": _extremum,
    "Sqrt": _root,
    "Exp": _exponential,
}
