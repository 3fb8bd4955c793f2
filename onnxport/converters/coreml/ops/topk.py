"""Ops that sort or add up elements along an axis: TopK, CumSum."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.ops.indexing import to_gatherable
from onnxport.converters.coreml.ops.slicing import slice_axis
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.integers import Integers, integers, normalize_axis


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
            node.unsupported("selects nothing, and Core ML holds no tensor without elements")
        values, indices = mil.emit_all("topk", x=x, k=k, axis=axis, ascending=ascending)
    else:
        order = mil.argsort(x=x, axis=axis, ascending=ascending)
        zero, k_ = Integers(mil, 0), count.reshaped(1)
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
    wanted = axis.reshaped().within(Integers(mil, x.rank))
    result = mil.cumsum(x=x, axis=0, **options)
    for other in range(1, x.rank):
        along = mil.cumsum(x=x, axis=other, **options)
        result = mil.select(cond=wanted.equals(other).value, a=along, b=result)
    node.emit(result)
