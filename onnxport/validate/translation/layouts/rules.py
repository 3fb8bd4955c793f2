"""A rule for each operator: how it computes on bases, and which view its result is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.layouts.views import Axes, Layouts, Rule, Shape, View, stand_in
from onnxport.validate.translation.layouts.windows import (
    lay_convolution,
    lay_mean,
    lay_pool,
    lay_transposed_convolution,
)

_ONE_AXIS = 13  # the opset from which a softmax is over one axis


def normalize_layouts(graph: ir.Graph, opset: int) -> dict[str, tuple[Shape, Axes]]:
    """Rewrite a graph of known sizes in place.

    Returns:
        Name of a value before -> the sizes of its base, and its axes there. A node that computes the value gives the
        elements of the base, in order, maybe with other sizes.
    """
    return Layouts(graph, opset).run(RULES, _plain)


def _plain(layouts: Layouts, node: ir.Node) -> None:
    layouts.read_in_order(node)


def _alias(layouts: Layouts, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    if (merged := layouts.merged.get(value)) is not None:
        layouts.merged[node.outputs[0]] = merged
    else:
        layouts.define(node.outputs[0], layouts.view(value))


def _transpose(layouts: Layouts, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    view = layouts.view(value)
    order = node.attributes.get_ints("perm", ()) or tuple(range(len(view.axes)))[::-1]
    layouts.define(node.outputs[0], View(view.base, tuple(view.axes[each] for each in order)))


def _reshape(layouts: Layouts, node: ir.Node) -> None:
    value, shape = node.inputs[0], static_sizes(node.outputs[0])
    assert value is not None
    assert shape is not None
    before = _static_view(layouts, value)
    if 0 in shape or before is None or prod(shape) != prod(before):  # of a damaged file, sizes contradict
        _plain(layouts, node)
        return
    found = layouts.see_merged(value, shape)
    if isinstance(found, View):
        layouts.define(node.outputs[0], found)
    else:
        layouts.merged[node.outputs[0]] = found


def _cast(layouts: Layouts, node: ir.Node) -> None:
    """Indices are the same numbers in 32 and in 64 bits."""
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    wide = (ir.DataType.INT32, ir.DataType.INT64)
    if value.dtype in wide and result.dtype in wide and not result.is_graph_output():
        _alias(layouts, node)
    else:
        _elementwise(layouts, node)


def _elementwise(layouts: Layouts, node: ir.Node) -> None:
    """Compute on the base of the first operand that has all axes, of one that is not repeated if there is any."""
    result = node.outputs[0]
    rank = len(static_sizes(result) or ())
    computed = [each for each in node.inputs if each is not None and not layouts.is_constant(each)]
    others = [each for each in node.inputs if each is not None and layouts.is_constant(each)]
    if len(computed) == 1 and all(prod(static_sizes(each) or ()) == 1 for each in others):
        layouts.replace_base(node, node.inputs.index(computed[0]))
        return
    shape = static_sizes(result)
    assert shape is not None
    of_all_axes = [each for each in computed if len(layouts.view(each).axes) == rank]
    whole = [each for each in of_all_axes if _static_view(layouts, each) == shape]
    first = next(iter(whole or of_all_axes), None)
    if first is None:
        _plain(layouts, node)
        return
    view = layouts.view(first)
    if any(axis is None and size != 1 for axis, size in zip(view.axes, shape, strict=True)):
        _plain(layouts, node)
        return
    places: dict[int, int] = {axis: place for place, axis in enumerate(view.axes) if axis is not None}
    width = len(view.base.shape or ())
    for place, value in enumerate(node.inputs):
        if value is None or (layouts.is_constant(value) and prod(static_sizes(value) or ()) == 1):
            continue
        own = len(layouts.view(value).axes)
        if static_sizes(layouts.view(value).base) is None:
            continue
        wanted = tuple(
            axis - (rank - own) if (axis := places.get(each)) is not None and axis >= rank - own else None
            for each in range(width)
        )
        node.replace_input_with(place, layouts.arrange(value, wanted))
    if len(computed) > 1 or not layouts.move_before_reshape(node, node.inputs.index(view.base), view.axes):
        layouts.lay(result, view.axes, width)


def _of_first(layouts: Layouts, node: ir.Node) -> None:
    """Element-wise operators whose other operands are scalars; of a grid per channel the axis moves along."""
    value = node.inputs[0]
    assert value is not None
    if len(node.inputs) > 1 and node.inputs[1] is not None and node.op_type != "Clip":
        scale = layouts.constant(node.inputs[1])
        if scale is None or not scale.is_scalar:
            view = layouts.view(value)
            axis = view.axes[node.attributes.get_int("axis", 1) % len(view.axes)]
            if axis is None or scale is None:
                _plain(layouts, node)
                return
            node.attributes["axis"] = ir.AttrInt64("axis", axis)
            node.replace_input_with(0, view.base)
            layouts.lay(node.outputs[0], view.axes, len(view.base.shape or ()))
            return
    layouts.replace_base(node, 0)


def _batch_normalization(layouts: Layouts, node: ir.Node) -> None:
    """On the base, where its channels lie behind the first axis, too."""
    value = node.inputs[0]
    assert value is not None
    view, result = layouts.view(value), node.outputs[0]
    is_plain = len(view.axes) > 1 and view.axes[1] == 1 and static_sizes(view.base) is not None
    if not is_plain or any(each.uses() or each.is_graph_output() for each in node.outputs[1:]):
        _plain(layouts, node)
        return
    node.replace_input_with(0, view.base)
    layouts.lay(result, view.axes, len(view.base.shape or ()))


def _along_axis(layouts: Layouts, node: ir.Node) -> None:
    """Softmax and its like: along the last axis, behind the others of the base in order."""
    value = node.inputs[0]
    assert value is not None
    view = layouts.view(value)
    given = node.attributes.get_int("axis", -1 if layouts.opset >= _ONE_AXIS else 1) % len(view.axes)
    axis, shape = view.axes[given], static_sizes(view.base)
    # Before, all axes from this one on are one.
    own = _static_view(layouts, value) or ()
    is_one = layouts.opset >= _ONE_AXIS or all(each == 1 for each in own[given + 1 :])
    if axis is None or shape is None or not is_one:
        _plain(layouts, node)
        return
    before = static_sizes(layouts.before(view.base)) or ()
    if axis == len(shape) - 1 and before[-1:] == shape[-1:]:
        # What is reshaped keeps its last axis: the function comes first.
        node.attributes["axis"] = ir.AttrInt64("axis", len(before) - 1)
        layouts.replace_base(node, 0)
        return
    order = [*(each for each in range(len(shape)) if each != axis), axis]
    sizes, base = [shape[each] for each in order], view.base
    if order != sorted(order):
        base = layouts.add("Transpose", [base], sizes, base, perm=order)
    node.attributes["axis"] = ir.AttrInt64("axis", len(shape) - 1)
    node.replace_input_with(0, base)
    result = node.outputs[0]
    result.shape = ir.Shape(sizes)
    layouts.define(
        result, View(result, tuple(None if each is None else order.index(each) for each in view.axes))
    )


def _concat(layouts: Layouts, node: ir.Node) -> None:
    first = node.inputs[0]
    assert first is not None
    view = layouts.view(first)
    rank = len(view.axes)
    axis = view.axes[node.attributes.get_int("axis", 0)]
    shape = static_sizes(node.outputs[0])
    if axis is None or static_sizes(view.base) is None or shape is None:
        _plain(layouts, node)
        return
    places = {each: place for place, each in enumerate(view.axes) if each is not None}
    width = len(view.base.shape or ())
    wanted = tuple(places.get(each) for each in range(width))
    if any(each is None and size != 1 for each, size in zip(view.axes, shape, strict=True)):
        _plain(layouts, node)
        return
    for place, value in enumerate(node.inputs):
        assert value is not None
        assert len(layouts.view(value).axes) == rank
        node.replace_input_with(place, layouts.arrange(value, wanted))
    node.attributes["axis"] = ir.AttrInt64("axis", axis)
    layouts.lay(node.outputs[0], view.axes, width)


def _reduce(layouts: Layouts, node: ir.Node) -> None:
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    view = layouts.view(value)
    given = node.attributes.get_ints("axes", None)
    stored = node.inputs[1] if len(node.inputs) > 1 else None
    if given is None and stored is not None:
        given = layouts.integers(stored)
        if given is None:
            _plain(layouts, node)
            return
    if not given:
        given = range(len(view.axes)) if not node.attributes.get_int("noop_with_empty_axes", 0) else ()
    reduced = sorted({each % len(view.axes) for each in given})
    axes = sorted(axis for each in reduced if (axis := view.axes[each]) is not None)
    keeps = bool(node.attributes.get_int("keepdims", 1))
    kept: Axes = (
        view.axes if keeps else tuple(axis for each, axis in enumerate(view.axes) if each not in reduced)
    )
    if not axes:
        layouts.define(result, View(view.base, kept))
        return
    base = list(static_sizes(view.base) or ())
    for axis in axes:
        base[axis] = 1
    _write_axes(layouts, node, axes)
    node.attributes["keepdims"] = ir.AttrInt64("keepdims", 1)
    node.replace_input_with(0, view.base)
    result.shape = ir.Shape(base)
    layouts.define(result, View(result, kept))


def _index_of_extreme(layouts: Layouts, node: ir.Node) -> None:
    """ArgMax and ArgMin: along the base's axis, which is kept with a size of 1."""
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    view = layouts.view(value)
    place = node.attributes.get_int("axis", 0) % len(view.axes)
    axis, base = view.axes[place], list(static_sizes(view.base) or ())
    if axis is None or not base:
        _plain(layouts, node)
        return
    keeps = bool(node.attributes.get_int("keepdims", 1))
    base[axis] = 1
    node.attributes["axis"] = ir.AttrInt64("axis", axis)
    node.attributes["keepdims"] = ir.AttrInt64("keepdims", 1)
    node.replace_input_with(0, view.base)
    result.shape = ir.Shape(base)
    kept = view.axes if keeps else view.axes[:place] + view.axes[place + 1 :]
    layouts.define(result, View(result, kept))


def _write_axes(layouts: Layouts, node: ir.Node, axes: Sequence[int]) -> None:
    since = 13 if node.op_type == "ReduceSum" else 18
    node.attributes.pop("axes", None)
    if layouts.opset < since:
        node.attributes["axes"] = ir.AttrInt64s("axes", axes)
        return
    stored = layouts.store(np.array(axes, np.int64))
    if len(node.inputs) > 1:
        node.replace_input_with(1, stored)
    else:
        node.resize_inputs(2)
        node.replace_input_with(1, stored)


def _global_pool(layouts: Layouts, node: ir.Node) -> None:
    """A mean or the largest of all pixels."""
    value = node.inputs[0]
    assert value is not None
    node.op_type = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}[node.op_type]
    node.attributes.clear()
    node.attributes["axes"] = ir.AttrInt64s("axes", list(range(2, len(layouts.view(value).axes))))
    _reduce(layouts, node)


def _cut(
    layouts: Layouts,
    value: ir.Value,
    result: ir.Value,
    parts: Mapping[int, tuple[int, int, int]],
    axes: Axes,
) -> None:
    """Make `result` the slice of `value` with start, end and step along some axes of it.

    Args:
        axes: of `value` that the result keeps.
    """
    view = layouts.view(value)
    base = static_sizes(view.base)
    assert base is not None
    starts, ends, steps, sizes = [0] * len(base), list(base), [1] * len(base), list(base)
    for axis, (start, end, step) in parts.items():
        place = view.axes[axis]
        if place is None:
            continue
        starts[place], ends[place], steps[place] = start, end, step
        sizes[place] = len(range(start, end, step))
    kept = tuple(None if each is None else view.axes[each] for each in axes)
    if sizes == list(base) and all(each == 1 for each in steps):
        layouts.define(result, View(view.base, kept))
        return
    ends = [-(2**31) if end < 0 else end for end in ends]
    numbers = [layouts.store(np.array(each, np.int64)) for each in (starts, ends, range(len(base)), steps)]
    found = layouts.add("Slice", [view.base, *numbers], sizes, result)
    layouts.define(result, View(found, kept))


def _slice(layouts: Layouts, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    numbers = [layouts.integers(each) for each in node.inputs[1:]]
    shape = _static_view(layouts, value)
    if len(numbers) < 2 or any(each is None for each in numbers) or shape is None:
        _plain(layouts, node)
        return
    starts, ends, *more = (each for each in numbers if each is not None)
    axes = more[0] if more else list(range(len(starts)))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    parts = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis]
        found = slice(start, None if step < 0 and end < -size else end, step).indices(size)
        parts[axis % len(shape)] = found
    _cut(layouts, value, node.outputs[0], parts, tuple(range(len(shape))))


def _split(layouts: Layouts, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    shape = _static_view(layouts, value)
    if shape is None:
        _plain(layouts, node)
        return
    axis = node.attributes.get_int("axis", 0) % len(shape)
    start = 0
    for result in node.outputs:
        size = (static_sizes(result) or ())[axis]
        _cut(layouts, value, result, {axis: (start, start + size, 1)}, tuple(range(len(shape))))
        start += size


def _gather(layouts: Layouts, node: ir.Node) -> None:
    """One index along an axis is a slice, several choose along the base's axis."""
    value, index = node.inputs[0], layouts.constant(node.inputs[1])
    assert value is not None
    shape = _static_view(layouts, value)
    if index is not None and index.values.ndim == 1 and shape is not None and not layouts.is_constant(value):
        view = layouts.view(value)
        along = view.axes[node.attributes.get_int("axis", 0) % len(shape)]
        if along is not None:
            node.replace_input_with(0, view.base)
            node.attributes["axis"] = ir.AttrInt64("axis", along)
            layouts.lay(node.outputs[0], view.axes, len(view.base.shape or ()))
            return
    if (
        index is None
        or index.values.size != 1
        or index.values.ndim
        or shape is None
        or layouts.is_constant(value)
    ):
        _plain(layouts, node)
        return
    axis = node.attributes.get_int("axis", 0) % len(shape)
    start = int(index.values) % shape[axis]
    kept = tuple(each for each in range(len(shape)) if each != axis)
    _cut(layouts, value, node.outputs[0], {axis: (start, start + 1, 1)}, kept)


def _static_view(layouts: Layouts, value: ir.Value) -> tuple[int, ...] | None:
    """Return the sizes of a value in its own order."""
    view = layouts.view(value)
    base = static_sizes(view.base)
    return None if base is None else tuple(1 if each is None else base[each] for each in view.axes)


def _pad(layouts: Layouts, node: ir.Node) -> None:
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    view = layouts.view(value)
    pads = layouts.integers(node.inputs[1]) if len(node.inputs) > 1 else None
    rank = len(view.axes)
    has_axes = len(node.inputs) > 3 and node.inputs[3] is not None
    if pads is None or has_axes or len(pads) != 2 * rank:
        _plain(layouts, node)
        return
    if any(axis is None and (pads[place] or pads[rank + place]) for place, axis in enumerate(view.axes)):
        _plain(layouts, node)
        return
    width = len(view.base.shape or ())
    moved = [0] * 2 * width
    for place, axis in enumerate(view.axes):
        if axis is not None:
            moved[axis], moved[width + axis] = pads[place], pads[rank + place]
    node.replace_input_with(0, view.base)
    node.replace_input_with(1, layouts.store(np.array(moved, np.int64)))
    layouts.lay(result, view.axes, width)


def _resize(layouts: Layouts, node: ir.Node) -> None:
    """Scales or sizes move with the axes."""
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    view, shape, wanted = layouts.view(value), _static_view(layouts, value), static_sizes(result)
    base = static_sizes(view.base)
    places = [1] if len(node.inputs) == 2 else [2, 3]
    given = {each: layouts.constant(node.inputs[each]) for each in places if each < len(node.inputs)}
    stored = {place: each.values for place, each in given.items() if each is not None and each.values.size}
    is_moved = any(
        axis is None and before != after
        for axis, before, after in zip(view.axes, shape or (), wanted or (), strict=True)
    )
    if base is None or shape is None or not stored or is_moved or "axes" in node.attributes:
        _plain(layouts, node)
        return
    for place, numbers in stored.items():
        is_size = place == places[-1] and len(places) > 1
        moved = list(base) if is_size else [1.0] * len(base)
        for axis, each in zip(view.axes, numbers.tolist(), strict=True):
            if axis is not None:
                moved[axis] = each
        dtype = np.int64 if is_size else np.float32
        node.replace_input_with(place, layouts.store(np.array(moved, dtype)))
    node.replace_input_with(0, view.base)
    layouts.lay(result, view.axes, len(base))


def _matrix_product(layouts: Layouts, node: ir.Node) -> None:
    """With a constant matrix all axes but the last are one; else axes of size 1 in front are dropped.

    Of two computed ones the result has no more rows than columns: A B = (B^T A^T)^T.
    """
    first, second = node.inputs
    assert first is not None
    assert second is not None
    result = node.outputs[0]
    merged = layouts.merged.get(first)
    shape, wanted = _static_view(layouts, first) if merged is None else merged.shape, static_sizes(result)
    other = _static_view(layouts, second)
    if shape is None or wanted is None or other is None or len(shape) < 2 or len(other) < 2:
        _plain(layouts, node)
        return
    if layouts.is_constant(second) and len(other) == 2 and _with_rows_moved(layouts, node):
        return
    if layouts.is_constant(second) and len(other) == 2:
        rows = prod(shape[:-1])
        view = layouts.see(first, (rows, shape[-1]))
        layouts.define(helper := stand_in(first, (rows, shape[-1])), view)
        node.replace_input_with(0, layouts.plain(helper))
        result.shape = ir.Shape([rows, other[1]])
        layouts.define(result, layouts.see(result, wanted, after=node))
        return
    dropped = 0
    while len(shape) == len(other) and dropped < len(shape) - 2 and shape[dropped] == other[dropped] == 1:
        dropped += 1
    is_turned = wanted[-2] > wanted[-1] and not (layouts.is_constant(first) or layouts.is_constant(second))
    if len(shape) != len(other) or not (dropped or is_turned):
        _plain(layouts, node)
        return
    axes, order = list(range(dropped, len(shape))), list(range(len(wanted) - dropped))
    if is_turned:
        first, second = second, first
        axes[-2:], order[-2:] = axes[:-3:-1], order[:-3:-1]
    node.replace_input_with(0, layouts.arrange(first, tuple(axes)))
    node.replace_input_with(1, layouts.arrange(second, tuple(axes)))
    sizes = wanted[dropped:]
    result.shape = ir.Shape([sizes[each] for each in order])
    layouts.define(result, View(result, (*(None,) * dropped, *order)))


def _gemm(layouts: Layouts, node: ir.Node) -> None:
    """A product with a constant matrix reads merged axes in the base's order, as MatMul does."""
    second = node.inputs[1]
    assert second is not None
    sizes = static_sizes(second)
    if not layouts.is_constant(second) or sizes is None or bool(node.attributes.get_int("transA", 0)):
        _plain(layouts, node)
        return
    if node.attributes.get_int("transB", 0):
        node.attributes["transB"] = ir.AttrInt64("transB", 0)
        node.replace_input_with(1, layouts.add("Transpose", [second], sizes[::-1], second, perm=[1, 0]))
    _with_rows_moved(layouts, node)
    _plain(layouts, node)  # the other operands, or all


def _with_rows_moved(layouts: Layouts, node: ir.Node) -> bool:
    """Have a product read merged axes in the base's order, and its matrix's rows in the same; return whether it can."""
    first, second = node.inputs[:2]
    merged = None if first is None else layouts.merged.get(first)
    base = None if merged is None else static_sizes(merged.base)
    if merged is None or base is None or second is None or len(merged.shape) != 2:
        return False
    sizes = [1 if axis is None else base[axis] for axis in merged.axes]
    front = next((each for each in range(len(sizes)) if prod(sizes[each:]) == merged.shape[1]), 0)
    rows, depth = merged.axes[:front], merged.axes[front:]
    moved = [axis for axis in depth if axis is not None and base[axis] != 1]
    kept = [axis for axis in rows if axis is not None and base[axis] != 1]
    if kept != sorted(kept) or (kept and moved and max(kept) > min(moved)):
        return False
    columns = (static_sizes(second) or ())[1]
    wide = layouts.reshape(second, (*(base[axis] for axis in moved), columns))
    order = [*sorted(range(len(moved)), key=lambda place: moved[place]), len(moved)]
    sizes = [base[axis] for axis in sorted(moved)]
    turned = layouts.add("Transpose", [wide], [*sizes, columns], second, perm=order)
    node.replace_input_with(0, layouts.reshape(merged.base, merged.shape))
    node.replace_input_with(1, layouts.reshape(turned, (merged.shape[1], columns)))
    places = np.arange(merged.shape[1]).reshape([base[axis] for axis in moved])
    node.meta[MOVED_ROWS] = places.transpose(order[:-1]).ravel()
    return True


# Key of a node's meta: the place that each row of its matrix had in the file.
MOVED_ROWS = "moved rows"
_UNARY = (
    "Relu Sigmoid Tanh HardSwish LeakyRelu HardSigmoid Elu Selu Gelu Erf Sqrt Exp Log Neg Abs Floor Ceil Round Sign "
    "Sin Cos Reciprocal Not Softplus Softsign Mish IsNaN"
)
_BROADCAST = (
    "Add Sub Mul Div Pow Min Max PRelu Where Less Greater LessOrEqual GreaterOrEqual Equal And Or Xor Mod"
)
RULES: Mapping[str, Rule] = {
    "Transpose": _transpose,
    "Identity": _alias,
    "Cast": _cast,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys((*_UNARY.split(), *_BROADCAST.split()), _elementwise),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "Clip"), _of_first),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _along_axis),
    **dict.fromkeys((f"Reduce{each}" for each in "Mean Sum Max Min Prod L1 L2".split()), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _index_of_extreme),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Pad": _pad,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "MatMul": _matrix_product,
    "Gemm": _gemm,
    "Conv": lay_convolution,
    "ConvTranspose": lay_transposed_convolution,
    "MaxPool": lay_pool,
    "AveragePool": lay_mean,
}
