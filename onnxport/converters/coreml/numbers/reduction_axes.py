"""The axes of a reduction, constant or computed at run time."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.values import Value


class Axes(ABC):
    """Axes to reduce.

    Attributes:
        known: the axes, in order and not negative; None if they are computed at run time.
    """

    known: list[int] | None = None

    @abstractmethod
    def kept(self, op: str, x: Term) -> Term:
        """Reduce by MIL's `op`, to a shape that broadcasts with `x`."""
        ...

    @abstractmethod
    def finished(self, kept: Term) -> Term:
        """Reshape the result of `kept` for the node's keepdims."""
        ...

    def reduced(self, op: str, x: Term) -> Term:
        return self.finished(self.kept(op, x))


class KnownAxes(Axes):
    """Constant axes; without any, each element is reduced alone."""

    def __init__(self, axes: list[int], *, keep: bool) -> None:
        self.known: list[int] = axes
        self._keep = keep

    def kept(self, op: str, x: Term) -> Term:
        return self._over(op, x, keep=True)

    def finished(self, kept: Term) -> Term:
        return kept if self._keep or not self.known else kept.call("squeeze", axes=self.known)

    def reduced(self, op: str, x: Term) -> Term:
        return self._over(op, x, keep=self._keep)

    def _over(self, op: str, x: Term, *, keep: bool) -> Term:
        if self.known:
            return x.call(op, axes=self.known, keep_dims=keep)
        return x * x if op == "reduce_sum_square" else x


class RunTimeAxes(Axes):
    """Computed axes: each axis is reduced, and the result selected where the axis is named."""

    def __init__(self, mil: MilBuilder, x: Value, axes: Value, count: int, *, keep: bool) -> None:
        self._mil, self._keep, self._left = mil, keep, x.rank - count
        named = Term(mil, mil.reshape(x=axes, shape=[count, 1]))
        wrapped = (named < 0).where(named + x.rank, named)
        every = mil.constant(np.arange(x.rank, dtype=np.int32))
        self._gone = wrapped.equals(every).whole().call("reduce_max", axes=[0], keep_dims=False)
        self._sizes = Term(mil, mil.shape(x=x))

    def kept(self, op: str, x: Term) -> Term:
        for axis in range(x.value.rank):
            flag = self._gone.call("slice_by_index", begin=[axis], end=[axis + 1]).differs(0)
            x = flag.where(x.call(op, axes=[axis], keep_dims=True), x)
        return x

    def finished(self, kept: Term) -> Term:
        rank = kept.value.rank
        sizes = self._gone.differs(0).where(self._sizes * 0 + 1, self._sizes)
        found = kept.call("slice_by_size", begin=[0] * rank, size=sizes.value)
        if self._keep:
            return found
        # The size of each axis that is left: that of the axis before which as many others are left.
        stays = 1 - self._gone
        before = stays.call("cumsum", axis=0) - 1
        places = self._mil.constant(np.arange(self._left, dtype=np.int32).reshape(-1, 1))
        left = before.equals(places).whole() * (stays * self._sizes)
        return found.call("reshape", shape=left.call("reduce_sum", axes=[1], keep_dims=False).value)
