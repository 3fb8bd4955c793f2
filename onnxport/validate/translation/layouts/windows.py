"""Rules for operators that move a window over pixels: convolutions and pools, with the padding in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.layouts.views import Layouts

_COUNTS = 7  # the opset from which an AveragePool can count its padding


def lay_window(layouts: Layouts, node: ir.Node) -> None:
    """Convolutions take zeros around them as their own padding, a MaxPool what is below every number.

    A mean counts the zeros, so that it has no padding of its own that it leaves out.
    """
    layouts.read_in_order(node)
    _take_padding(layouts, node)


def _take_padding(layouts: Layouts, node: ir.Node) -> None:
    """Make a Pad in front of a window the window's own padding, where it pads pixels with what changes nothing."""
    result = node.inputs[0]
    assert result is not None
    data, order = _before_transpose(result)
    padded = _before_grids(layouts, data)
    if padded is None or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return
    is_neutral = _pads_lowest(layouts, padded) if node.op_type == "MaxPool" else _pads_zeros(layouts, padded)
    pads = _pads_of(layouts, padded, data)
    if not is_neutral or pads is None or pads[:, order[:2]].any() or pads.min() < 0:
        return
    added = [int(each) for each in pads[:, order[2:]].reshape(-1)]
    own = node.attributes.get_ints("pads", (0,) * len(added))
    if node.op_type == "AveragePool":
        if any(own) and not node.attributes.get_int("count_include_pad", 0):
            return
        node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    node.attributes["pads"] = ir.AttrInt64s(
        "pads", [ours + more for ours, more in zip(own, added, strict=True)]
    )
    value, sizes = padded.inputs[0], static_sizes(data)
    assert value is not None
    if sizes is not None and static_sizes(value) is not None:
        value = layouts.reshape(value, tuple(int(each) for each in np.array(sizes) - pads.sum(0)))
    node.replace_input_with(0, value if data is result else _transposed(layouts, value, order))


def _before_transpose(value: ir.Value) -> tuple[ir.Value, list[int]]:
    """Return what a Transpose reads and its order; a value itself where none gives it."""
    node = value.producer()
    order = list(range(len(value.shape or ())))
    before = None if node is None or node.op_type != "Transpose" else node.inputs[0]
    if node is None or before is None or static_sizes(before) is None:
        return value, order
    return before, list(node.attributes.get_ints("perm", order[::-1]))


def _transposed(layouts: Layouts, value: ir.Value, order: Sequence[int]) -> ir.Value:
    before = static_sizes(value) or ()
    sizes = tuple(before[each] for each in order)
    moving = [each for each in order if before[each] != 1]
    if moving == sorted(moving):  # axes of size 1 alone
        return layouts.reshape(value, sizes)
    return layouts.add("Transpose", [value], sizes, value, perm=list(order))


def _pads_of(layouts: Layouts, padded: ir.Node, data: ir.Value) -> Array | None:
    """Return how far a Pad reaches before and behind each axis of `data`, which may have more axes of size 1."""
    given = layouts.integers(padded.inputs[1])
    if given is None:
        return None
    pads = np.array(given, np.int64).reshape(2, -1)
    before, sizes = static_sizes(padded.outputs[0]), static_sizes(data)
    if before is None or sizes is None or before == sizes:
        return pads
    found = np.zeros((2, len(sizes)), np.int64)
    found[:, [axis for axis, size in enumerate(sizes) if size != 1]] = pads[:, np.array(before) != 1]
    return found


def lay_pool(layouts: Layouts, node: ir.Node) -> None:
    """Write a pool whose last windows reach beyond the data as one with that much padding.

    One over one axis is written as one over two, as a convolution is.
    """
    is_narrow = len(node.attributes.get_ints("kernel_shape", ())) == 1
    if is_narrow and not any(each.uses() or each.is_graph_output() for each in node.outputs[1:]):
        _widen(layouts, node)
        _take_padding(layouts, node)
    else:
        lay_window(layouts, node)
    attributes, data = node.attributes, node.inputs[0]
    before, behind = (None if each is None else static_sizes(each) for each in (data, node.outputs[0]))
    rounds_up, counts = (attributes.get_int(name, 0) for name in ("ceil_mode", "count_include_pad"))
    if before is None or behind is None or not rounds_up or counts:
        return
    if attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return
    kernel = attributes.get_ints("kernel_shape", ())
    axes = len(kernel)
    strides, dilations = (attributes.get_ints(name, (1,) * axes) for name in ("strides", "dilations"))
    pads = list(attributes.get_ints("pads", (0,) * 2 * axes))
    for axis in range(axes):
        reach = (behind[2 + axis] - 1) * strides[axis] + dilations[axis] * (kernel[axis] - 1) + 1
        pads[axes + axis] = max(pads[axes + axis], reach - before[2 + axis] - pads[axis])
    attributes["ceil_mode"] = ir.AttrInt64("ceil_mode", 0)
    attributes["pads"] = ir.AttrInt64s("pads", pads)


def lay_mean(layouts: Layouts, node: ir.Node) -> None:
    """Write a mean that leaves padding out as one that counts it, times what that makes too small.

    Given   AveragePool(x), pads, count_include_pad = 0
    Result  AveragePool(x), pads, count_include_pad = 1  *  size of the window / elements of x in it
    """
    lay_pool(layouts, node)
    attributes, result = node.attributes, node.outputs[0]
    data, shape = node.inputs[0], static_sizes(result)
    sizes = None if data is None else static_sizes(data)
    pads = attributes.get_ints("pads", ())
    if result.dtype is None or sizes is None or shape is None or not any(pads):
        return
    rounds_up, counts = (attributes.get_int(name, 0) for name in ("ceil_mode", "count_include_pad"))
    if rounds_up or counts or layouts.opset < _COUNTS:
        return
    if attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return
    kernel = attributes.get_ints("kernel_shape", ())
    axes = len(kernel)
    strides, dilations = (attributes.get_ints(name, (1,) * axes) for name in ("strides", "dilations"))
    factor: Array = np.ones(())
    for axis in range(axes):
        starts = np.arange(shape[2 + axis])[:, None] * strides[axis] - pads[axis]
        places = starts + np.arange(kernel[axis]) * dilations[axis]
        inside = ((places >= 0) & (places < sizes[2 + axis])).sum(1)
        if not inside.all():
            return
        factor = np.multiply.outer(factor, kernel[axis] / inside)
    settings: dict[str, Any] = {**attributes, "count_include_pad": ir.AttrInt64("count_include_pad", 1)}
    mean = layouts.add("AveragePool", [data], shape, result, **settings)
    node.op_type = "Mul"
    attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, mean)
    node.replace_input_with(1, layouts.store(factor.astype(result.dtype.numpy())[None, None]))


def lay_convolution(layouts: Layouts, node: ir.Node) -> None:
    """Write a convolution over one axis as one over two, of which the first has size 1; see `_drop_idle_taps`."""
    is_fixed = layouts.is_constant(node.inputs[1])
    _lay_axes(layouts, node)
    if is_fixed:
        _drop_idle_taps(layouts, node)


def _drop_idle_taps(layouts: Layouts, node: ir.Node) -> None:
    """Leave out the taps that see padding alone: of an axis of one element that gives one, all but one do."""
    data, weight = node.inputs[:2]
    sizes, kernel = (None if each is None else static_sizes(each) for each in (data, weight))
    attributes = node.attributes
    if sizes is None or kernel is None or weight is None:
        return
    if len(sizes) != len(kernel) or attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return
    axes = len(sizes) - 2
    pads = list(attributes.get_ints("pads", (0,) * 2 * axes))
    strides, dilations = (attributes.get_ints(name, (1,) * axes) for name in ("strides", "dilations"))
    kept = list(kernel)
    for axis in range(axes):
        reach = dilations[axis] * (kernel[2 + axis] - 1) + 1
        beyond = 1 + pads[axis] + pads[axes + axis] - reach
        tap, is_between = divmod(pads[axis], dilations[axis])
        if sizes[2 + axis] != 1 or kernel[2 + axis] == 1 or not 0 <= beyond < strides[axis] or is_between:
            continue
        if tap >= kernel[2 + axis]:
            continue
        kept[2 + axis] = 1
        pads[axis] = pads[axes + axis] = 0
        numbers = [layouts.store(np.array([each], np.int64)) for each in (tap, tap + 1, 2 + axis)]
        weight = layouts.add("Slice", [weight, *numbers], kept, weight)
    if kept != list(kernel):
        node.replace_input_with(1, weight)
        attributes["pads"] = ir.AttrInt64s("pads", pads)
        attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", kept[2:])


def _lay_axes(layouts: Layouts, node: ir.Node) -> None:
    data, weight = node.inputs[:2]
    sizes = None if weight is None else static_sizes(weight)
    if data is None or weight is None or sizes is None or len(sizes) != 3:
        lay_window(layouts, node)
        return
    _widen_weight(layouts, node)
    _widen(layouts, node)
    _take_padding(layouts, node)


def lay_transposed_convolution(layouts: Layouts, node: ir.Node) -> None:
    """Write one over one axis as one over two."""
    weight = node.inputs[1]
    sizes = None if weight is None else static_sizes(weight)
    if sizes is None or len(sizes) != 3:
        layouts.read_in_order(node)
        return
    for name, plain in (("output_padding", 0), ("output_shape", 1)):
        if given := node.attributes.get_ints(name, None):
            node.attributes[name] = ir.AttrInt64s(name, [plain, *given])
    _widen_weight(layouts, node)
    _widen(layouts, node)


def _widen_weight(layouts: Layouts, node: ir.Node) -> None:
    weight = node.inputs[1]
    assert weight is not None
    first, second, width = static_sizes(weight) or ()
    node.replace_input_with(1, layouts.reshape(layouts.plain(weight), (first, second, 1, width)))


def _widen(layouts: Layouts, node: ir.Node) -> None:
    """Have a window over [N, C, W] move over [N, C, 1, W]."""
    data = node.inputs[0]
    assert data is not None
    for name in ("kernel_shape", "strides", "dilations"):
        if given := node.attributes.get_ints(name, None):
            node.attributes[name] = ir.AttrInt64s(name, [1, *given])
    if pads := node.attributes.get_ints("pads", None):
        node.attributes["pads"] = ir.AttrInt64s("pads", [0, pads[0], 0, pads[1]])
    node.replace_input_with(0, layouts.arrange(data, (0, 1, None, 2)))
    layouts.lay(node.outputs[0], (0, 1, 3), 4)


def _before_grids(layouts: Layouts, value: ir.Value) -> ir.Node | None:
    """Return the Pad behind a value, through axes of size 1, and grids that what it pads is on already."""
    grids: list[tuple[float, float] | None] = []
    while (node := value.producer()) is not None:
        if node.op_type == "Pad":
            maker = _maker(node.inputs[0])
            on = [_grid(layouts, maker)] if maker is not None and maker.op_type == "DequantizeLinear" else []
            return node if all(each is not None and each in on for each in grids) else None
        if node.inputs[0] is None:
            return None
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            grids.append(_grid(layouts, node))
        elif node.op_type != "Reshape" or _long(value) is None or _long(value) != _long(node.inputs[0]):
            return None
        value = node.inputs[0]
    return None


def _maker(value: ir.Value | None) -> ir.Node | None:
    """Return the node that computes a value, behind views."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in ("Reshape", "Transpose") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def _long(value: ir.Value) -> list[int] | None:
    """Return the sizes above 1."""
    sizes = static_sizes(value)
    return None if sizes is None else [each for each in sizes if each != 1]


def _grid(layouts: Layouts, node: ir.Node) -> tuple[float, float] | None:
    numbers = [layouts.number(each) for each in node.inputs[1:]]
    if not numbers or any(each is None for each in numbers):
        return None
    scale, *zero = (each for each in numbers if each is not None)
    return scale, zero[0] if zero else 0.0


def _pads_zeros(layouts: Layouts, node: ir.Node) -> bool:
    if node.attributes.get_string("mode", "constant") != "constant":
        return False
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return value is None or layouts.number(value) == 0


# Of float16: no right file has a smaller number.
_LOWEST = -65504.0


def _pads_lowest(layouts: Layouts, node: ir.Node) -> bool:
    """Return whether no number that is padded is smaller than the padding."""
    if node.attributes.get_string("mode", "constant") != "constant" or node.inputs[0] is None:
        return False
    value = layouts.number(node.inputs[2]) if len(node.inputs) > 2 else 0.0
    maker = node.inputs[0].producer()
    is_positive = maker is not None and maker.op_type in ("Relu", "Sigmoid")
    return value is not None and (value <= _LOWEST or (value == 0 and is_positive))
