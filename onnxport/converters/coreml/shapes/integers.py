"""int32 arithmetic on sizes, bounds, axes and indices, known at conversion or computed at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, NoMil
from onnxport.converters.coreml.values import Value
from onnxport.converters.formulas import IntegerFormula
from onnxport.converters.shape_arithmetic import LIMIT
from onnxport.core.arrays import Array

# Operations of Arithmetic -> NumPy's functions of other names.
_NUMPY = {"sub": np.subtract, "mul": np.multiply, "floor_div": np.floor_divide}

Operand: TypeAlias = "Integers | int | Sequence[int] | Array"


class Element(NamedTuple):
    """One element of a vector, extracted only when it is needed alone."""

    vector: Integers
    place: int


class Integers(IntegerFormula):
    """int32 arithmetic: NumPy's as long as the elements are known, MIL's operators afterwards."""

    def __init__(self, mil: MilBuilder, held: Array | Value | int | Sequence[int] | Element) -> None:
        self.mil = mil
        self.origin = held if isinstance(held, Element) else None
        self._held = held if isinstance(held, Element | Value) else np.asarray(held)

    @property
    def held(self) -> Array | Value:
        if isinstance(self._held, Element):
            # A gather, through which MIL's builder follows sizes that it knows.
            self._held = self.mil.gather(x=self._held.vector.value, indices=self._held.place, axis=0)
        return self._held

    @property
    def known(self) -> Array | None:
        """The elements if they are known at conversion."""
        return None if self.origin is not None or isinstance(self.held, Value) else self.held

    @property
    def number(self) -> int | None:
        """The number of a scalar that is known at conversion."""
        return None if self.known is None else int(self.known)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return () if self.origin is not None else self.held.shape

    @property
    def length(self) -> int:
        """The number of elements of a vector."""
        (length,) = self.shape
        assert length is not None, "vectors of sizes, bounds and axes have a known length"
        return length

    @property
    def value(self) -> Value:
        """As a Value of int32 elements, or of bool for a condition."""
        if isinstance(self.held, Value):
            return self.held
        return self.mil.constant(self.held.astype(np.bool_ if self.held.dtype == np.bool_ else np.int32))

    def binary(self, op: str, other: Operand, /, *, swapped: bool = False) -> Integers:
        pair = (self, self._operand(other))
        x, y = reversed(pair) if swapped else pair
        if x.known is not None and y.known is not None:
            return Integers(self.mil, (_NUMPY.get(op) or getattr(np, op))(x.known, y.known))
        return Integers(self.mil, self.mil.emit(op, x=x.value, y=y.value))

    def column(self) -> Integers:
        return self.reshape(-1, 1)

    def _operand(self, other: Operand) -> Integers:
        return other if isinstance(other, Integers) else Integers(self.mil, np.asarray(other))

    def __neg__(self) -> Integers:
        return Integers(self.mil, 0) - self

    def __abs__(self) -> Integers:
        return self.maximum(-self)

    def where(self, then: Operand, otherwise: Operand) -> Integers:
        chosen, rest = self._operand(then), self._operand(otherwise)
        if self.known is not None:
            if self.known.size == 1 or self.known.all() or not self.known.any():
                taken = chosen if self.known.all() else rest
                if taken.shape == self.shape:
                    return taken
            if chosen.known is not None and rest.known is not None:
                return Integers(self.mil, np.where(self.known, chosen.known, rest.known))
        # MIL's builder infers the result's shape from the two choices alone.
        if chosen.shape != self.shape and rest.shape != self.shape:
            chosen = chosen + np.zeros([dim or 1 for dim in self.shape], np.int32)
        return Integers(self.mil, self.mil.select(cond=self.value, a=chosen.value, b=rest.value))

    def _apply(self, op: str, fold: Callable[[Array], Any], **parameters: Any) -> Integers:
        """Emit `op`, or compute it with `fold` as long as the elements are known."""
        if self.known is not None:
            return Integers(self.mil, fold(self.known))
        return Integers(self.mil, self.mil.emit(op, x=self.value, **parameters))

    def as_numbers(self) -> Integers:
        return self._apply("cast", lambda x: x.astype(np.int32), dtype="int32")

    def sum(self, axis: int) -> Integers:
        return self._apply("reduce_sum", lambda x: x.sum(axis), axes=[axis], keep_dims=False)

    def product(self) -> Integers:
        """Return the product of a vector's elements, a scalar."""
        return self._apply("reduce_prod", np.prod, axes=[0], keep_dims=False)

    def running_sum(self) -> Integers:
        return self._apply("cumsum", np.cumsum, axis=0)

    def part(self, start: int, stop: int) -> Integers:
        """Return the elements of a vector from `start` up to `stop`."""
        if self.known is not None:
            return Integers(self.mil, self.known[start:stop])
        if (start, stop) == (0, self.shape[0]):
            return self
        return Integers(self.mil, self.mil.slice_by_index(x=self.value, begin=[start], end=[stop]))

    def element(self, index: int) -> Integers:
        """Return one element of a vector as a scalar."""
        if self.known is not None:
            return Integers(self.mil, self.known[index])
        return Integers(self.mil, Element(self, index))

    def reshape(self, *shape: int) -> Integers:
        """Return the elements in another shape, in which one size may be -1."""
        if self.known is not None:
            return Integers(self.mil, self.known.reshape(shape))
        if self.shape == shape:
            return self
        if self.origin is not None and shape == (1,):
            return self.origin.vector.part(self.origin.place, self.origin.place + 1)
        if not shape:
            return Integers(self.mil, self.mil.squeeze(x=self.value))
        return Integers(self.mil, self.mil.reshape(x=self.value, shape=list(shape)))


def integers(mil: MilBuilder, value: Value) -> Integers:
    """Return an operand as int32; elements beyond its range ("to the end") become its limits."""
    if value.constant is not None:
        return Integers(mil, np.clip(value.constant, -LIMIT, LIMIT).astype(np.int64))
    return Integers(mil, Value(value.shape, np.dtype(np.int32), copies={"int32": mil.var(value, "int32")}))


def sizes_of(mil: MilBuilder, x: Value) -> Integers:
    """Return the sizes of x's axes; none for a scalar."""
    if None not in x.shape:
        return Integers(mil, np.array(x.shape, np.int64))
    if x.row is not None:
        held = list(x.row.sizes)
        others = concatenate(mil, [size for size in held if size is not None]).product()
        total = sizes_of(mil, x.row.held).element(0)
        return concatenate(mil, [total // others if size is None else size for size in held])
    return Integers(mil, mil.shape(x=x))


def size_of(mil: MilBuilder, x: Value, axis: int) -> Integers:
    """Return the size of one axis as a scalar."""
    size = x.shape[axis]
    return sizes_of(mil, x).element(axis) if size is None else Integers(mil, size)


def concatenate(mil: MilBuilder, parts: Sequence[Integers | int]) -> Integers:
    """Concatenate scalars and vectors to a vector."""
    vectors = [part if isinstance(part, Integers) else Integers(mil, part) for part in parts]
    vectors = [vector.reshape(1) if vector.shape == () else vector for vector in _runs(vectors)]
    vectors = [vector for vector in vectors if vector.shape != (0,)]
    if all(vector.known is not None for vector in vectors):
        arrays = [np.asarray(vector.known) for vector in vectors]
        return Integers(mil, np.concatenate(arrays) if arrays else np.zeros(0, np.int64))
    if len(vectors) == 1:
        return vectors[0]
    return Integers(mil, mil.concat(values=[vector.value for vector in vectors], axis=0))


def _runs(parts: Sequence[Integers]) -> list[Integers]:
    """Merge neighbouring elements of one vector into slices of it."""
    found: list[Integers] = []
    start = 0
    for index, part in enumerate(parts):
        first, following = part.origin, parts[index + 1].origin if index + 1 < len(parts) else None
        if first and following and first.vector is following.vector and first.place + 1 == following.place:
            continue
        opening = parts[start].origin
        found.append(
            opening.vector.part(opening.place, opening.place + index - start + 1) if opening else part
        )
        start = index + 1
    return found


def arange(mil: MilBuilder, count: Integers) -> Integers:
    """Return 0, 1, 2 ... below `count`."""
    if count.number is not None:
        return Integers(mil, np.arange(count.number))
    return Integers(mil, mil.range_1d(start=0, end=count.value, step=1))


def axis_table(mil: MilBuilder, axes: Value, rank: int) -> Integers:
    """Return [rank, len(axes)]: 1 where `axes` names the row's axis in that column, 0 elsewhere."""
    wrapped = integers(mil, axes).within(rank).reshape(1, -1)
    return Integers(mil, np.arange(rank)[:, None]).equals(wrapped).as_numbers()


# ---- axes, which may count from the end


def normalize_axis(axis: int, rank: int, *, last: bool = False) -> int:
    """Return an axis counted from 0.

    Args:
        last: accept the place behind the last axis.
    """
    if not -rank <= axis < rank + last:
        raise NoMil(f"names axis {axis} of a tensor that has {rank}")
    return axis + rank if axis < 0 else axis


def named_axes(axes: Value, rank: int) -> list[int]:
    """Return constant axes, counted from 0."""
    assert axes.constant is not None
    return [normalize_axis(int(axis), rank) for axis in axes.constant.reshape(-1)]
