"""The quantization plan: data that placement makes and every later step reads.

A unit is a node that computes in integers, with the Relu or Clip behind it that its result's range takes in. Grids,
groups, weights and biases follow from the units.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

IntegerType = Literal["uint8", "int8", "int16"]
# (factor, shift): what is that much of another tensor, and that much more.
Affine = tuple[float, float]
_SAME: Affine = (1.0, 0.0)


@dataclass(frozen=True)
class Weight:
    """A constant operand of a product, stored as int8."""

    tensor: str  # the initializer's name
    axis: int | None  # along which it has a scale each; None for one scale


@dataclass(frozen=True)
class Bias:
    """The bias of a product, stored as int32 at the scales of its input and weight."""

    tensor: str | None  # the initializer's name; None where the node has no bias and may be given one
    channels: int  # how many values


@dataclass(frozen=True)
class FixedGrid:
    """A grid that the operator fixes: results of Sigmoid lie in [0, 1] whatever the samples."""

    # low, high: the range that the integers divide.
    low: float
    high: float

    def moved(self, affine: Affine) -> FixedGrid:
        factor, shift = affine
        return FixedGrid(self.low * factor + shift, self.high * factor + shift)


@dataclass(frozen=True)
class Unit:
    """A node that computes in integers."""

    node: str  # its name in the settled graph
    op: str  # its operator
    reads: tuple[str, ...]  # the tensors that it takes in integers: its first operand first, each once
    # The tensors that it gives in integers; behind what is folded. Empty where it gives floats.
    writes: tuple[str, ...]
    weight: Weight | None = None  # of a product with a constant
    bias: Bias | None = None  # of a product that has one or may be given one
    # Constant operands that go on a grid as activations do, each of its own values.
    constants: tuple[str, ...] = ()
    # The nodes behind it that saturation replaces, in their order, where the result's grid ends with them.
    folded: tuple[str, ...] = ()
    shares: bool = False  # whether all that it reads and writes lies on one grid
    follows: bool = False  # whether integers save it nothing unless it is given them and others take them
    is_light: bool = False  # whether integers save it nothing unless it is given them or others take them
    # The tensors that it has to be given in integers then; some of `reads`, or any one if empty.
    needs: tuple[str, ...] = ()
    fixed: FixedGrid | None = None  # the grid of its result where the operator tells it
    # What `folded` limits the result to, or its readers need of it, (low, high); infinite where none.
    bounds: tuple[float, float] | None = None
    # Bounds beyond which readers make no difference in 8 bits.
    closed: tuple[float, float] | None = None
    # (factor, shift) where all it does is to multiply by the one, which is positive, and to add the other:
    # its result is the same integers on another grid, and no kernel runs. A constant of it is in
    # `constants`.
    affine: Affine | None = None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Return every activation that the unit reads or writes in integers."""
        return (*self.reads, *self.writes)


@dataclass(frozen=True)
class Placement:
    """The plan of a quantized graph."""

    units: tuple[Unit, ...]  # the nodes that compute in integers, in the graph's order
    # Name of a node that stays in float to the reason, in words; nodes that compute no floats are not in
    # it.
    floats: Mapping[str, str] = field(default_factory=dict)
    dtype: IntegerType = "uint8"  # of activations
    wide: frozenset[str] = frozenset()  # tensors that are int16 instead
    # Tensors whose grid an operator gave in a plan that this is part of: no sample was asked for their
    # range.
    known: Mapping[str, FixedGrid] = field(default_factory=dict)

    @cached_property
    def activations(self) -> tuple[str, ...]:
        """Return the tensors that have a grid, each once, in the graph's order."""
        return tuple(dict.fromkeys(name for unit in self.units for name in unit.tensors))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Return activations grouped by shared integers, in the graph's order."""
        return tuple(tuple(group) for group in self._grouped)

    @cached_property
    def affine(self) -> Mapping[str, Affine]:
        """Map an activation to factor and shift relative to the first of its group."""
        found: dict[str, Affine] = {}
        for group in self._grouped:
            factor, shift = next(iter(group.values()))
            base = (1 / factor, -shift / factor)
            found |= {name: _compose(base, each) for name, each in group.items()}
        return found

    @cached_property
    def _grouped(self) -> tuple[dict[str, Affine], ...]:
        """Return each group's activations with their relation to a common value."""
        group_of = {name: {name: _SAME} for name in self.activations}
        for unit in self.units:
            if unit.shares or unit.affine is not None:
                for name in unit.tensors[1:]:
                    _merge_groups(group_of, unit.tensors[0], name, unit.affine or _SAME)
        return tuple({id(group): group for group in group_of.values()}.values())

    @cached_property
    def fixed(self) -> Mapping[str, FixedGrid]:
        """Map activations to grids fixed by an operator of their group."""
        told = {name: grid for name, grid in self.known.items() if name in self.affine}
        told |= {name: unit.fixed for unit in self.units if unit.fixed for name in unit.writes}
        found: dict[str, FixedGrid] = {}
        for group in self.groups:
            known = next((name for name in group if name in told), None)
            if known is not None:
                factor, shift = self.affine[known]
                first = told[known].moved((1 / factor, -shift / factor))
                found |= {name: first.moved(self.affine[name]) for name in group}
        return found

    @cached_property
    def observed(self) -> tuple[str, ...]:
        """Return the activations whose grid needs samples."""
        return tuple(name for name in self.activations if name not in self.fixed)

    @cached_property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Map activations to the bounds of a folded Relu or Clip, or of their readers."""
        return {
            name: bounds
            for unit in self.units
            for name in unit.writes
            if (bounds := unit.bounds or (unit.closed if self.dtype_of(name) != "int16" else None))
        }

    @cached_property
    def weights(self) -> Mapping[Weight, tuple[Unit, ...]]:
        """Map every weight to the units that multiply by it."""
        users: dict[Weight, list[Unit]] = {}
        for unit in self.units:
            if unit.weight is not None:
                users.setdefault(unit.weight, []).append(unit)
        return {weight: tuple(units) for weight, units in users.items()}

    @cached_property
    def unit(self) -> Mapping[str, Unit]:
        """Map node names to units."""
        return {unit.node: unit for unit in self.units}

    def dtype_of(self, tensor: str) -> IntegerType:
        return "int16" if tensor in self.wide else self.dtype

    def without(self, nodes: Collection[str], why: str) -> Placement:
        """Return the plan with these nodes in float."""
        gone = [unit for unit in self.units if unit.node in nodes]
        left = [unit for unit in self.units if unit.node not in nodes]
        kept = drop_isolated_units(left)
        alone = reasons_of_isolation(left, kept)
        reasons = dict.fromkeys((unit.node for unit in gone), why) | alone
        return replace(self, units=kept, floats={**self.floats, **reasons}, known=self.fixed)

    def widened(self, tensors: Collection[str]) -> Placement:
        """Return the plan with these tensors, and those that share a grid with them, in int16.

        A grid of 16 bits has its zero in the middle: what would move it becomes a computation.
        """
        wanted = frozenset(tensors)
        wide = frozenset(name for group in self.groups if not wanted.isdisjoint(group) for name in group)
        units = tuple(
            replace(unit, affine=None)
            if unit.affine is not None and unit.affine[1] != 0 and not wide.isdisjoint(unit.tensors)
            else unit
            for unit in self.units
        )
        return replace(self, units=units, wide=self.wide | wide, known=self.fixed)


ALONE = "nothing around it gives it integers and takes them"
LIGHT = "between floats, converting costs more than its few multiplications save"


def _compose(first: Affine, second: Affine) -> Affine:
    """Compose two affine maps: `second` of `first`."""
    return first[0] * second[0], first[1] * second[0] + second[1]


def _merge_groups(group_of: dict[str, dict[str, Affine]], first: str, second: str, affine: Affine) -> None:
    """Merge the groups of two tensors, the smaller into the larger; second is `affine` of first."""
    one, other = group_of[first], group_of[second]
    if one is other:
        return
    if len(one) < len(other):
        factor, shift = affine
        first, second, one, other = second, first, other, one
        affine = (1 / factor, -shift / factor)
    factor, shift = other[second]
    # What the other group has in common, of what this one has.
    base = _compose(_compose(one[first], affine), (1 / factor, -shift / factor))
    for name, each in other.items():
        one[name] = _compose(base, each)
        group_of[name] = one


def drop_isolated_units(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Drop units that gain nothing between their neighbours, but for light ones where no product would be left."""
    kept = _drop_isolated_units(units)
    if any(unit.weight is not None for unit in kept):
        return kept
    return _drop_isolated_units([replace(unit, is_light=False) for unit in units])


def _drop_isolated_units(units: Sequence[Unit]) -> tuple[Unit, ...]:
    while True:
        made = {name for unit in units for name in unit.writes}
        taken = {name for unit in units for name in unit.reads}
        kept = [unit for unit in units if _gains(unit, made, taken)]
        if len(kept) == len(units):
            return tuple(units)
        units = kept


def reasons_of_isolation(units: Sequence[Unit], kept: Sequence[Unit]) -> dict[str, str]:
    """Return why units that are not kept stay in float, by node."""
    names = {unit.node for unit in kept}
    return {unit.node: LIGHT if unit.is_light else ALONE for unit in units if unit.node not in names}


def _gains(unit: Unit, made: Set[str], taken: Set[str]) -> bool:
    """Return whether integers save a unit anything between these neighbours."""
    if unit.follows:
        return _has_integer_neighbours(unit, made, taken)
    return not unit.is_light or not made.isdisjoint(unit.reads) or not taken.isdisjoint(unit.writes)


def _has_integer_neighbours(unit: Unit, made: Collection[str], taken: Collection[str]) -> bool:
    """Return whether neighbours make a unit's inputs in integers and read its outputs so."""
    given = all(name in made for name in unit.needs) and any(name in made for name in unit.reads)
    return (given or unit.affine is not None) and any(name in taken for name in unit.writes)
