"""Reductions over axes, known or computed at run time, the positions of extremes, TopK and CumSum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder, MilNode, NoMil
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.numbers.integer_widths import quotient
from onnxport.converters.coreml.ops.indexing import to_gatherable
from onnxport.converters.coreml.ops.slicing import slice_axis
from onnxport.converters.coreml.registry import REGISTRY, lower
from onnxport.converters.coreml.shapes import high_rank
from onnxport.converters.coreml.shapes.integers import Integers, integers, normalize_axis
from onnxport.converters.coreml.values import Value
from onnxport.converters.semantics import reduction_axes

_LARGEST = {"fp32": float(np.finfo(np.float32).max), "fp16": float(np.finfo(np.float16).max)}


class _Axes(ABC):
    """_Axes to reduce.

    Attributes:
        known: the axes, in order and not negative; None if they are computed at run time.
    """

    known: list[int] | None = None

    @abstractmethod
    def reduce_keeping(self, op: str, x: Term) -> Term:
        """Reduce by MIL's `op`, to a shape that broadcasts with `x`."""

    @abstractmethod
    def finish(self, kept: Term) -> Term:
        """Reshape the result of `reduce_keeping` for the node's keepdims."""

    def reduce(self, op: str, x: Term) -> Term:
        return self.finish(self.reduce_keeping(op, x))


class _KnownAxes(_Axes):
    """Constant axes; without any, each element is reduced alone."""

    def __init__(self, axes: list[int], *, keep: bool) -> None:
        self.known: list[int] = axes
        self._keep = keep

    def reduce_keeping(self, op: str, x: Term) -> Term:
        return self._over(op, x, keep=True)

    def finish(self, kept: Term) -> Term:
        return kept if self._keep or not self.known else kept.call("squeeze", axes=self.known)

    def reduce(self, op: str, x: Term) -> Term:
        return self._over(op, x, keep=self._keep)

    def _over(self, op: str, x: Term, *, keep: bool) -> Term:
        if self.known:
            return x.call(op, axes=self.known, keep_dims=keep)
        return x * x if op == "reduce_sum_square" else x


class _RunTimeAxes(_Axes):
    """Computed axes: each axis is reduced, and the result selected where the axis is named."""

    def __init__(self, mil: MilBuilder, x: Value, axes: Value, count: int, *, keep: bool) -> None:
        self._mil, self._keep, self._left = mil, keep, x.rank - count
        named = Term(mil, mil.reshape(x=axes, shape=[count, 1]))
        wrapped = (named < 0).where(named + x.rank, named)
        every = mil.constant(np.arange(x.rank, dtype=np.int32))
        self._gone = wrapped.equals(every).whole().call("reduce_max", axes=[0], keep_dims=False)
        self._sizes = Term(mil, mil.shape(x=x))

    def reduce_keeping(self, op: str, x: Term) -> Term:
        for axis in range(x.value.rank):
            flag = self._gone.call("slice_by_index", begin=[axis], end=[axis + 1]).differs(0)
            x = flag.where(x.call(op, axes=[axis], keep_dims=True), x)
        return x

    def finish(self, kept: Term) -> Term:
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


def _axes(node: MilNode, mil: MilBuilder) -> _Axes:
    rank, axes, keep = node.x.rank, node.optional(1), bool(node.attribute("keepdims", 1))
    known = reduction_axes(node, axes)
    if known is not None or axes is None:
        return _KnownAxes(known or [], keep=keep)
    count = axes.shape[0] if axes.rank else 1
    if count is None:
        node.unsupported("the number of its axes (input 1) is known only at run time")
    if count < rank:
        return _RunTimeAxes(mil, node.x, axes, count, keep=keep)
    return _KnownAxes(list(range(rank)), keep=keep)


_Reduction = Callable[[Term, _Axes], Term]


def _mean(x: Term, axes: _Axes) -> Term:
    if x.value.is_float:
        return axes.reduce("reduce_mean", x)
    sizes = [x.value.shape[axis] for axis in axes.known or ()]
    if axes.known is None or None in sizes:
        raise NoMil("the mean of integers over sizes known only at run time; cast to float before it")
    count = Term(x.mil, x.mil.constant(np.array(np.prod(np.array(sizes, np.int64)))))
    return quotient(axes.reduce("reduce_sum", x), count, np.dtype(np.int32))


def _in_floats(reduction: _Reduction, x: Term, axes: _Axes) -> Term:
    """Reduce integers in floats, as ONNX Runtime does."""
    found = reduction(x.real(), axes)
    return found if x.value.is_float else found.whole()


def _sum_square(x: Term, axes: _Axes) -> Term:
    return axes.reduce("reduce_sum", x * x) if axes.known is None else axes.reduce("reduce_sum_square", x)


def _l2(x: Term, axes: _Axes) -> Term:
    if axes.known:
        return axes.reduce("reduce_l2_norm", x)
    return axes.reduce("reduce_sum", x * x).call("sqrt") if axes.known is None else x.call("abs")


def _log_sum_exp(x: Term, axes: _Axes) -> Term:
    """Shift by the largest element so that exp cannot overflow; an infinite one would give NaN."""
    largest = _LARGEST[x.mil.compute]
    peak = axes.reduce_keeping("reduce_max", x).maximum(-largest).minimum(largest)
    total = axes.reduce_keeping("reduce_sum", (x - peak).call("exp"))
    return axes.finish(total.call("log", epsilon=0.0) + peak)


def _lower_reduction(reduction: _Reduction, node: MilNode, mil: MilBuilder) -> None:
    x, axes = node.x, _axes(node, mil)
    if high_rank.is_tall(x) and axes.known:
        x, axes, wanted = _merge_neighbours(mil, x, axes.known, keep=bool(node.attribute("keepdims", 1)))
        node.emit(high_rank.reshape(mil, _reduce(reduction, Term(mil, x), axes), wanted))
    else:
        node.emit(_reduce(reduction, Term(mil, x), axes))


def _reduce(reduction: _Reduction, x: Term, axes: _Axes) -> Value:
    is_flag = x.value.dtype.kind == "b"
    return reduction(x.whole(), axes).differs(0).value if is_flag else reduction(x, axes).value


def _merge_neighbours(
    mil: MilBuilder, x: Value, axes: Sequence[int], *, keep: bool
) -> tuple[Value, _Axes, list[high_rank.Size]]:
    """Return a value of many dimensions with neighbours as one, the axes to reduce there, and the result's sizes."""
    own = high_rank.sizes(mil, x)
    runs = [list(run) for _, run in groupby(range(len(own)), lambda axis: axis in axes)]
    merged = high_rank.reshape(mil, x, [high_rank.product(mil, [own[each] for each in run]) for run in runs])
    places = [place for place, run in enumerate(runs) if run[0] in axes]
    sizes = [1 if axis in axes else size for axis, size in enumerate(own) if keep or axis not in axes]
    return merged, _KnownAxes(places, keep=False), sizes


_REDUCTIONS: dict[str, _Reduction] = {
    "ReduceL1": lambda x, axes: axes.reduce("reduce_sum", x.call("abs")),
    "ReduceL2": partial(_in_floats, _l2),
    "ReduceLogSum": partial(
        _in_floats, lambda x, axes: axes.reduce("reduce_sum", x).call("log", epsilon=0.0)
    ),
    "ReduceLogSumExp": lambda x, axes: x if axes.known == [] else _in_floats(_log_sum_exp, x, axes),
    "ReduceMax": lambda x, axes: axes.reduce("reduce_max", x),
    "ReduceMean": _mean,
    "ReduceMin": lambda x, axes: axes.reduce("reduce_min", x),
    "ReduceProd": lambda x, axes: axes.reduce("reduce_prod", x),
    "ReduceSum": lambda x, axes: axes.reduce("reduce_sum", x),
    "ReduceSumSquare": _sum_square,
}
REGISTRY.table({op: partial(_lower_reduction, reduction) for op, reduction in _REDUCTIONS.items()})


def _lower_arg_extreme(extreme: str, node: MilNode, mil: MilBuilder) -> None:
    """The index of the extreme along an axis (ONNX ArgMax-13), the first or last one of equals.

    MIL documents the choice of reduce_argmax among equals as "not guaranteed", so their positions decide.
    """
    x = node.x
    axis, keep = int(node.attribute("axis", 0)), bool(node.attribute("keepdims", 1))
    last = bool(node.attribute("select_last_index", 0))
    if x.rank == 0:
        node.emit(mil.constant(np.zeros((), np.int64)))
        return
    axis %= x.rank
    term = Term(mil, x)
    is_extreme = term.equals(term.call(extreme, axes=[axis], keep_dims=True))
    places, final = _places(mil, x, axis, is_extreme)
    # If all elements are NaN, there is no extreme; the position still exists.
    if last:
        found = is_extreme.where(places, places * 0).call("reduce_max", axes=[axis], keep_dims=keep)
    else:
        found = is_extreme.where(places, final).call("reduce_min", axes=[axis], keep_dims=keep)
    found.value.is_natural = True
    node.emit(found.value)


@lower("Hardmax")
def hardmax(node: MilNode, mil: MilBuilder) -> None:
    """1 at the first of the largest elements along an axis, 0 elsewhere (ONNX Hardmax-13)."""
    x = Term(mil, node.x)
    axis = int(node.attribute("axis", -1)) % node.x.rank
    is_largest = x.equals(x.call("reduce_max", axes=[axis], keep_dims=True))
    places, final = _places(mil, node.x, axis, is_largest)
    first = is_largest.where(places, final).call("reduce_min", axes=[axis], keep_dims=True)
    node.emit(places.equals(first).real().value)


def _places(mil: MilBuilder, x: Value, axis: int, like: Term) -> tuple[Term, Term]:
    """Return 0, 1, 2 ... along the axis, and the last of them."""
    size = x.shape[axis]
    if size is None:
        ones = (like | ~like).whole()
        places = Term(mil, mil.cumsum(x=ones.value, axis=axis)) - 1
        return places, places.call("reduce_max", axes=[axis], keep_dims=True)
    row = np.arange(size, dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(x.rank)])
    return Term(mil, mil.constant(row)), Term(mil, mil.constant(np.array(size - 1, np.int32)))


REGISTRY.table(
    {f"Arg{name}": partial(_lower_arg_extreme, f"reduce_{name.lower()}") for name in ("Max", "Min")}
)


@lower("TopK")
def top_k(node: MilNode, mil: MilBuilder) -> None:
    """The k largest or smallest elements along an axis, sorted, and their indices (ONNX TopK-11)."""
    x = to_gatherable(mil, node.x)
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    ascending = not node.attribute("largest", 1)
    node.ignore("sorted")  # an unsorted result may be sorted
    count = integers(mil, node.input(1))
    if count.known is not None:
        k = int(count.known.item())
        if not k:
            node.unsupported("selects nothing, and Core ML has no empty tensors")
        values, indices = mil.emit_all("topk", x=x, k=k, axis=axis, ascending=ascending)
    else:
        order = mil.argsort(x=x, axis=axis, ascending=ascending)
        zero, k_ = Integers(mil, 0), count.reshape(1)
        indices = slice_axis(mil, order, axis, zero, k_)
        values = slice_axis(mil, mil.gather_along_axis(x=x, indices=order, axis=axis), axis, zero, k_)
    indices.is_natural = True
    node.emit(values, 0)
    node.emit(indices, 1)


@lower("CumSum")
def cumulative_sum(node: MilNode, mil: MilBuilder) -> None:
    """Running sums along an axis (ONNX CumSum-14)."""
    x, axis = node.x, integers(mil, node.input(1))
    options = {name: bool(node.attribute(name, 0)) for name in ("exclusive", "reverse")}
    if axis.known is not None or x.rank == 1:
        number = 0 if axis.known is None else normalize_axis(int(axis.known.item()), x.rank)
        node.emit(mil.cumsum(x=x, axis=number, **options))
        return
    wanted = axis.reshape().within(Integers(mil, x.rank))
    result = mil.cumsum(x=x, axis=0, **options)
    for other in range(1, x.rank):
        along = mil.cumsum(x=x, axis=other, **options)
        result = mil.select(cond=wanted.equals(other).value, a=along, b=result)
    node.emit(result)
