"""Arithmetic on small integers, known now or at run time: sizes, bounds, axes and indices that a model computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.values import Value
from onnxport.core.arrays import Array

LIMIT = np.iinfo(np.int32).max

Operand: TypeAlias = "Integers | int | Sequence[int] | Array"


class Element(NamedTuple):
    """One element of a vector, taken out when it is needed alone."""

    vector: Integers
    place: int


class Integers:
    """int32 elements under a formula: NumPy's while they are known, MIL operators from where they are not."""

    def __init__(self, mil: MilBuilder, held: Array | Value | int | Sequence[int] | Element) -> None:
        self.mil = mil
        self.origin = held if isinstance(held, Element) else None
        self._held = (
            None if isinstance(held, Element) else held if isinstance(held, Value) else np.asarray(held)
        )

    @property
    def held(self) -> Array | Value:
        if self._held is None:
            assert self.origin is not None
            # A gather, through which MIL's builder follows sizes that it knows.
            vector, place = self.origin
            self._held = self.mil.gather(x=vector.value, indices=place, axis=0)
        found: Array | Value = self._held
        return found

    @property
    def known(self) -> Array | None:
        """The elements, if they are known now."""
        return None if self.origin is not None or isinstance(self.held, Value) else self.held

    @property
    def number(self) -> int | None:
        """Of a scalar: the number, if it is known now."""
        return None if self.known is None else int(self.known)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return () if self.origin is not None else self.held.shape

    @property
    def length(self) -> int:
        """Of a vector: how many elements it has."""
        (length,) = self.shape
        assert length is not None, "vectors of sizes, bounds and axes have a known length"
        return length

    @property
    def value(self) -> Value:
        """As a Value of int32 elements, or of bool for a condition."""
        if isinstance(self.held, Value):
            return self.held
        return self.mil.constant(self.held.astype(np.bool_ if self.held.dtype == np.bool_ else np.int32))

    # ---- arithmetic

    def __add__(self, other: Operand) -> Integers:
        return self._with("add", np.add, other)

    def __sub__(self, other: Operand) -> Integers:
        return self._with("sub", np.subtract, other)

    def __mul__(self, other: Operand) -> Integers:
        return self._with("mul", np.multiply, other)

    def __floordiv__(self, other: Operand) -> Integers:
        return self._with("floor_div", np.floor_divide, other)

    def __mod__(self, other: Operand) -> Integers:
        return self._with("mod", np.mod, other)

    def __lt__(self, other: Operand) -> Integers:
        return self._with("less", np.less, other)

    def __ge__(self, other: Operand) -> Integers:
        return self._with("greater_equal", np.greater_equal, other)

    def equals(self, other: Operand) -> Integers:
        return self._with("equal", np.equal, other)

    def maximum(self, other: Operand) -> Integers:
        return self._with("maximum", np.maximum, other)

    def minimum(self, other: Operand) -> Integers:
        return self._with("minimum", np.minimum, other)

    def and_(self, other: Integers) -> Integers:
        return self._with("logical_and", np.logical_and, other)

    def negated(self) -> Integers:
        return Integers(self.mil, 0) - self

    def absolute(self) -> Integers:
        return self.maximum(self.negated())

    def where(self, then: Operand, otherwise: Operand) -> Integers:
        """For conditions: `then` where they hold, `otherwise` elsewhere."""
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

    def as_numbers(self) -> Integers:
        """For conditions: 1 where they hold, 0 elsewhere."""
        if self.known is not None:
            return Integers(self.mil, self.known.astype(np.int32))
        return Integers(self.mil, self.mil.cast(x=self.value, dtype="int32"))

    def summed(self, axis: int) -> Integers:
        if self.known is not None:
            return Integers(self.mil, self.known.sum(axis))
        return Integers(self.mil, self.mil.reduce_sum(x=self.value, axes=[axis], keep_dims=False))

    def product(self) -> Integers:
        """Of a vector: the product of its elements, a scalar."""
        if self.known is not None:
            return Integers(self.mil, self.known.prod())
        return Integers(self.mil, self.mil.reduce_prod(x=self.value, axes=[0], keep_dims=False))

    def running_sum(self) -> Integers:
        """Of a vector: the sum of the elements up to each."""
        if self.known is not None:
            return Integers(self.mil, self.known.cumsum())
        return Integers(self.mil, self.mil.cumsum(x=self.value, axis=0))

    def within(self, size: Integers) -> Integers:
        """Indices with `size` added to the negative ones."""
        return (self < 0).where(self + size, self)

    # ---- form

    def part(self, start: int, stop: int) -> Integers:
        """Of a vector: the elements from `start` to `stop`."""
        if self.known is not None:
            return Integers(self.mil, self.known[start:stop])
        if (start, stop) == (0, self.shape[0]):
            return self
        return Integers(self.mil, self.mil.slice_by_index(x=self.value, begin=[start], end=[stop]))

    def element(self, index: int) -> Integers:
        """Of a vector: one element as a scalar."""
        if self.known is not None:
            return Integers(self.mil, self.known[index])
        return Integers(self.mil, Element(self, index))

    def reshaped(self, *shape: int) -> Integers:
        """With the same elements in another shape, in which one size may be -1."""
        if self.known is not None:
            return Integers(self.mil, self.known.reshape(shape))
        if self.shape == shape:
            return self
        if self.origin is not None and shape == (1,):
            return self.origin.vector.part(self.origin.place, self.origin.place + 1)
        if not shape:
            return Integers(self.mil, self.mil.squeeze(x=self.value))
        return Integers(self.mil, self.mil.reshape(x=self.value, shape=list(shape)))

    def _with(self, op: str, function: Callable[[Any, Any], Any], other: Operand) -> Integers:
        right = self._operand(other)
        if self.known is not None and right.known is not None:
            return Integers(self.mil, function(self.known, right.known))
        return Integers(self.mil, self.mil.emit(op, x=self.value, y=right.value))

    def _operand(self, other: Operand) -> Integers:
        return other if isinstance(other, Integers) else Integers(self.mil, np.asarray(other))


def integers(mil: MilBuilder, value: Value) -> Integers:
    """An operand's elements; what lies beyond int32 ("to the end") becomes its limit."""
    if value.constant is not None:
        return Integers(mil, np.clip(value.constant, -LIMIT, LIMIT).astype(np.int64))
    return Integers(mil, Value(value.shape, np.dtype(np.int32), copies={"int32": mil.var(value, "int32")}))


def sizes_of(mil: MilBuilder, x: Value) -> Integers:
    """The sizes of x's axes; of a scalar, none."""
    if x.is_static:
        return Integers(mil, np.array(x.shape, np.int64))
    if x.row is not None:
        held = list(x.row.sizes)
        others = joined(mil, [size for size in held if size is not None]).product()
        total = sizes_of(mil, x.row.held).element(0)
        return joined(mil, [total // others if size is None else size for size in held])
    return Integers(mil, mil.shape(x=x))


def size_of(mil: MilBuilder, x: Value, axis: int) -> Integers:
    """The size of one axis as a scalar."""
    size = x.shape[axis]
    return sizes_of(mil, x).element(axis) if size is None else Integers(mil, size)


def joined(mil: MilBuilder, parts: Sequence[Integers | int]) -> Integers:
    """Scalars and vectors one after another as a vector."""
    vectors = [part if isinstance(part, Integers) else Integers(mil, part) for part in parts]
    vectors = [vector.reshaped(1) if vector.shape == () else vector for vector in _runs(vectors)]
    vectors = [vector for vector in vectors if vector.shape != (0,)]
    if all(vector.known is not None for vector in vectors):
        arrays = [np.asarray(vector.known) for vector in vectors]
        return Integers(mil, np.concatenate(arrays) if arrays else np.zeros(0, np.int64))
    if len(vectors) == 1:
        return vectors[0]
    return Integers(mil, mil.concat(values=[vector.value for vector in vectors], axis=0))


def _runs(parts: Sequence[Integers]) -> list[Integers]:
    """The same with neighbouring elements of one vector as a part of it."""
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


def counted(mil: MilBuilder, count: Integers) -> Integers:
    """0, 1, 2 ... below `count`."""
    if count.number is not None:
        return Integers(mil, np.arange(count.number))
    return Integers(mil, mil.range_1d(start=0, end=count.value, step=1))


def axis_table(mil: MilBuilder, axes: Value, rank: int) -> Integers:
    """[rank, len(axes)]: 1 where an axis (row) is the one that `axes` names there, 0 elsewhere."""
    wrapped = integers(mil, axes).within(Integers(mil, rank)).reshaped(1, -1)
    return Integers(mil, np.arange(rank)[:, None]).equals(wrapped).as_numbers()
