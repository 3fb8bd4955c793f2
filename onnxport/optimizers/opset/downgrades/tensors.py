"""Pad, Scatter, Split, ArgMax, Shape and Trilu."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers, required

_END = 2**63 - 1


@lowers("Pad", version=18)
def pad_axes(node: Node) -> None:
    """Expand pads of some axes to all axes."""
    axes_value, pads = node.input(3), required(node.input(1))
    if axes_value is None:
        return
    axes, shape = node.array(axes_value), node.shape(node.x)
    if axes is None or shape is None:
        raise NoForm("its axes or the rank of its input are known at run time only")
    rank = len(shape)
    places = [int(axis) % rank for axis in axes]
    places += [rank + place for place in places]
    known = node.array(pads)
    if known is None:
        zeros, indices = node.constant([0] * (2 * rank)), node.constant(places)
        whole = node.before("ScatterElements", zeros, indices, pads, axis=0)
    else:
        full = np.zeros(2 * rank, np.int64)
        full[places] = known
        whole = node.constant(full)
    node.put_input(1, whole)
    node.drop_input(3)
    node.forget(pads)


@lowers("Split", version=18)
def split_parts(node: Node) -> None:
    """Write parts of unequal size as sizes, or as slices where the length is open."""
    parts = node.take("num_outputs")
    if parts is None:
        return
    shape, axis = node.shape(node.x), node.attribute("axis", 0)
    size = None if shape is None else shape[axis]
    if size is not None and size % parts == 0:
        return
    if size is not None:
        each = -(-size // parts)
        node.put_input(1, node.constant([max(0, min(each, size - n * each)) for n in range(parts)]))
        return
    along = node.constant([axis])
    length = node.before("Gather", node.before("Shape", node.x), along, axis=0)
    rounded = node.before("Add", length, node.constant([parts - 1]))
    each = node.before("Div", rounded, node.constant([parts]))
    bounds = [node.before("Mul", each, node.constant([n])) for n in range(1, parts)]
    _slice_outputs(node, [node.constant([0]), *bounds, node.constant([_END])], along)


@lowers("Split", version=13)
def split_sizes(node: Node) -> None:
    """Move sizes back to an attribute; computed ones become slices."""
    sizes = node.input(1)
    if sizes is None:
        return
    known = node.array(sizes)
    if known is not None:
        node.put(split=[int(size) for size in known])
        node.drop_input(1)
        return
    ends = node.before("CumSum", sizes, node.constant(0))
    bounds = [node.before("Gather", ends, node.constant([n]), axis=0) for n in range(len(node.ir.outputs))]
    _slice_outputs(node, [node.constant([0]), *bounds], node.constant([node.attribute("axis", 0)]))


def _slice_outputs(node: Node, bounds: list[ir.Value], along: ir.Value) -> None:
    """Replace the node's outputs by slices between the bounds."""
    for index in range(len(node.ir.outputs)):
        if node.ir.outputs[index].name:
            node.hand_over(index, node.before("Slice", node.x, bounds[index], bounds[index + 1], along))
    node.remove()


@lowers("ArgMax", "ArgMin", version=12)
def last_index(node: Node) -> None:
    """Write the last of equal elements as the first counted from the back."""
    if not node.attribute("select_last_index", 0):
        return
    axis, keeps = node.attribute("axis", 0), node.attribute("keepdims", 1)
    steps = (node.constant([number]) for number in (-1, -_END, axis, -1))
    first = node.before(node.ir.op_type, node.before("Slice", node.x, *steps), axis=axis, keepdims=keeps)
    size = node.before("Gather", node.before("Shape", node.x), node.constant(axis), axis=0)
    node.become("Sub", node.before("Sub", size, node.constant(1)), first)


@lowers("Shape", version=15)
def shape_range(node: Node) -> None:
    """Write `start` and `end` as a Slice."""
    start, end = node.take("start", 0), node.take("end")
    if start or end is not None:
        node.after(0, "Slice", node.constant([start]), node.constant([_END if end is None else end]))


@lowers("Trilu", version=14)
def trilu(node: Node) -> None:
    """Mask by column minus row, compared with `k`."""
    dtype, x = node.dtype(node.x), node.x
    if dtype is None:
        raise NoForm(f"the type of its input {x.name!r} is not known")
    shape, zero, one = node.before("Shape", x), node.constant(0), node.constant(1)
    sides = [node.before("Gather", shape, node.constant(axis), axis=0) for axis in (-2, -1)]
    rows, columns = (node.before("Range", zero, side, one) for side in sides)
    offset = node.before("Sub", columns, node.before("Reshape", rows, node.constant([-1, 1])))
    side = "Less" if node.attribute("upper", 1) else "Greater"
    outside = node.before(side, offset, node.input(1) or zero)
    if dtype == ir.DataType.BOOL:  # ONNX Runtime's Where has none
        node.become("And", node.before("Not", outside), x)
    else:
        node.become("Where", outside, node.constant(0, dtype), x)
