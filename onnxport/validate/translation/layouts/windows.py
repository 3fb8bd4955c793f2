"""Rules for operators that move a window over pixels: convolutions and pools, with the padding in front of them."""

from __future__ import annotations

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
    data = node.inputs[0]
    assert data is not None
    padded = _before_grids(layouts, data)
    pads = None if padded is None else layouts.integers(padded.inputs[1])
    value = None if padded is None else padded.inputs[0]
    if padded is None or pads is None or value is None:
        return
    is_neutral = _pads_lowest(layouts, padded) if node.op_type == "MaxPool" else _pads_zeros(layouts, padded)
    if not is_neutral:
        return
    if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return
    rank = len(pads) // 2
    if pads[0] or pads[1] or pads[rank] or pads[rank + 1] or min(pads) < 0:
        return
    own = node.attributes.get_ints("pads", (0,) * 2 * (rank - 2))
    if node.op_type == "AveragePool":
        if any(own) and not node.attributes.get_int("count_include_pad", 0):
            return
        node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    added = [*pads[2:rank], *pads[rank + 2 :]]
    node.attributes["pads"] = ir.AttrInt64s(
        "pads", [ours + more for ours, more in zip(own, added, strict=True)]
    )
    node.replace_input_with(0, value)


def lay_pool(layouts: Layouts, node: ir.Node) -> None:
    """Write a pool whose last windows reach beyond the data as one with that much padding."""
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
    """Write a convolution over one axis as one over two, of which the first has size 1."""
    data, weight = node.inputs[:2]
    sizes = None if weight is None else static_sizes(weight)
    if data is None or weight is None or sizes is None or len(sizes) != 3:
        lay_window(layouts, node)
        return
    for name in ("kernel_shape", "strides", "dilations"):
        if given := node.attributes.get_ints(name, None):
            node.attributes[name] = ir.AttrInt64s(name, [1, *given])
    if pads := node.attributes.get_ints("pads", None):
        node.attributes["pads"] = ir.AttrInt64s("pads", [0, pads[0], 0, pads[1]])
    node.replace_input_with(0, layouts.arrange(data, (0, 1, None, 2)))
    node.replace_input_with(1, layouts.reshape(layouts.plain(weight), (*sizes[:2], 1, sizes[2])))
    layouts.lay(node.outputs[0], (0, 1, 3), 4)


def _before_grids(layouts: Layouts, value: ir.Value) -> ir.Node | None:
    """Return the Pad behind a value, through grids that what it pads is on already."""
    grids: list[tuple[float, float] | None] = []
    while (node := value.producer()) is not None:
        if node.op_type == "Pad":
            data = node.inputs[0]
            maker = None if data is None else data.producer()
            on = [_grid(layouts, maker)] if maker is not None and maker.op_type == "DequantizeLinear" else []
            return node if all(each is not None and each in on for each in grids) else None
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or node.inputs[0] is None:
            return None
        grids.append(_grid(layouts, node))
        value = node.inputs[0]
    return None


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
