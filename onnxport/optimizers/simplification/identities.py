"""Nodes that return their operand, and operands that equal the default."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import dims_of
from onnxport.optimizers.empty_operands import drop_empty_operands
from onnxport.optimizers.patterns import (
    array,
    axes_of,
    integers,
    is_op,
    keeps_shape,
    known_dims,
    number,
    producer,
    rank_of,
    same_shape,
    static_dims,
)
from onnxport.optimizers.simplification.constants import is_zero
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, simplification

# A Slice to here or beyond is a Slice to the end.
_END = 2**31 - 1


@simplification("drop-no-ops")
def drop_no_ops(editor: ModelEditor) -> int:
    """Remove nodes that return their operand: Identity, Dropout, Cast to the same type, Transpose that moves
    nothing, Reshape and Expand to the same shape, Slice of everything, Pad by nothing, Concat and Split of one, x
    + 0, x * 1, pooling of one element, and the like.

    Keeps: A node between an input and an output of the graph, which need two names; a constant that raises
    the rank.
    """
    dropped = 0
    for node in editor.nodes():
        same = _SAME.get(node.op_type)
        if same is not None and len(node.inputs) and (source := same(node)) is not None:
            dropped += bypass(node, source)
    return dropped


def _operand_if(node: ir.Node, is_result: bool) -> ir.Value | None:
    return node.inputs[0] if is_result else None


def _operand_of_operand(node: ir.Node) -> ir.Value | None:
    inner = producer(node.inputs[0], node.op_type)
    return None if inner is None else inner.inputs[0]


def _dropout(node: ir.Node) -> ir.Value | None:
    """Since opset 12 a third operand enables training."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    return _operand_if(node, training is None or number(training) == 0)


def _cast(node: ir.Node) -> ir.Value | None:
    source = node.inputs[0]
    return _operand_if(node, source is not None and source.dtype == node.attributes.get_int("to"))


def _transpose(node: ir.Node) -> ir.Value | None:
    perm = list(node.attributes.get_ints("perm", ()))
    return _operand_if(node, bool(perm) and perm == sorted(perm))


def _slice(node: ir.Node) -> ir.Value | None:
    """Return the operand of a Slice of all elements in their order."""
    source = node.inputs[0]
    if source is None or "starts" in node.attributes or len(node.inputs) < 3:
        return None  # before opset 10
    starts, ends = integers(node.inputs[1]), integers(node.inputs[2])
    steps = integers(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
    if steps is None or any(step != 1 for step in steps):
        return None
    if same_shape(source, node.outputs[0]) and static_dims(source) is not None:
        return source
    axes = axes_of(node, 3)
    if starts is None or ends is None or axes is None or any(starts):
        return None
    dims = dims_of(source) if source.shape is not None else ()
    sizes = [dims[axis] if -len(dims) <= axis < len(dims) else None for axis in axes or range(len(starts))]
    if len(sizes) != len(ends):
        return None
    pairs = zip(ends, sizes, strict=True)
    return _operand_if(node, all(end >= _END or (isinstance(n, int) and end >= n) for end, n in pairs))


def _pad(node: ir.Node) -> ir.Value | None:
    pads = list(node.attributes["pads"].as_ints()) if "pads" in node.attributes else integers(node.inputs[1])
    return _operand_if(node, pads is not None and not any(pads))


def _tile(node: ir.Node) -> ir.Value | None:
    repeats = integers(node.inputs[1]) if len(node.inputs) == 2 else None
    return _operand_if(node, repeats is not None and all(each == 1 for each in repeats))


def _concat(node: ir.Node) -> ir.Value | None:
    """Drop empty operands, and return the operand if one is left."""
    drop_empty_operands(node)
    return _operand_if(node, len(node.inputs) == 1)


def _neutral(element: float, *, commutes: bool) -> Callable[[ir.Node], ir.Value | None]:
    """Return a rule for a binary operator: the operand beside one that is all `element` and keeps the shape."""

    def same(node: ir.Node) -> ir.Value | None:
        first, second = node.inputs
        for value, other in ((first, second), (second, first))[: 2 if commutes else 1]:
            constant = array(other) if other is not None and other.const_value is not None else None
            if value is None or constant is None or constant.dtype.kind not in "fiub":
                continue
            rank = rank_of(value)
            small = constant.ndim == 0 or (constant.size == 1 and rank is not None and constant.ndim <= rank)
            keeps_shape = small or same_shape(value, node.outputs[0])
            if keeps_shape and constant.size and np.all(constant == element):
                return value
        return None

    return same


def _pool(node: ir.Node) -> ir.Value | None:
    """Return the operand of a pooling over windows of one element."""
    if is_op(node, "GlobalAveragePool", "GlobalMaxPool"):
        tail = (known_dims(node.inputs[0]) or ())[2:]
        return _operand_if(node, bool(tail) and all(dim == 1 for dim in tail))
    kernel, strides, pads = (
        node.attributes.get_ints(name, ()) for name in ("kernel_shape", "strides", "pads")
    )
    plain = all(each == 1 for each in (*kernel, *strides)) and not any(pads)
    return _operand_if(node, plain and len(node.outputs) == 1)


def _reduce(node: ir.Node) -> ir.Value | None:
    """Return the operand of a reduction over axes of size 1 with keepdims."""
    source, axes = node.inputs[0], axes_of(node)
    if source is None or source.shape is None or not axes or not node.attributes.get_int("keepdims", 1):
        return None
    dims = dims_of(source)
    return source if all(dims[axis] == 1 for axis in axes) else None


def _resize(node: ir.Node) -> ir.Value | None:
    """Return the operand of a Resize by scales of 1 or to the same sizes; scales near 1 read between elements."""
    if node.attributes.get_string("coordinate_transformation_mode", "half_pixel").startswith("tf_"):
        return None
    source, scales = node.inputs[0], array(node.inputs[2]) if len(node.inputs) > 2 else None
    if scales is not None and scales.size:
        return source if np.all(scales == 1) else None
    by_sizes = len(node.inputs) > 3 and node.inputs[3] is not None
    return source if by_sizes and same_shape(source, node.outputs[0]) and static_dims(source) else None


# Operator -> function that finds the operand that a node returns, if it does.
_SAME: dict[str, Callable[[ir.Node], ir.Value | None]] = {
    "Identity": lambda node: node.inputs[0],
    "Dropout": _dropout,
    "Cast": _cast,
    "Transpose": _transpose,
    **dict.fromkeys(
        ("Expand", "Flatten"),
        lambda node: _operand_if(node, same_shape(node.inputs[0], node.outputs[0])),
    ),
    "Reshape": lambda node: _operand_if(node, keeps_shape(node)),
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Concat": _concat,
    "Split": lambda node: _operand_if(node, len(node.outputs) == 1),
    "Clip": lambda node: _operand_if(
        node, all(value is None for value in node.inputs[1:]) and not {"min", "max"} & set(node.attributes)
    ),
    "Resize": _resize,
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), lambda node: _operand_if(node, len(node.inputs) == 1)),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"), _pool),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduce),
    **dict.fromkeys(("Neg", "Not", "Reciprocal"), _operand_of_operand),
    "Add": _neutral(0, commutes=True),
    "Or": _neutral(0, commutes=True),
    "Sub": _neutral(0, commutes=False),
    "Mul": _neutral(1, commutes=True),
    "And": _neutral(1, commutes=True),
    "Div": _neutral(1, commutes=False),
    "Pow": _neutral(1, commutes=False),
}


# B, the initial states and an LSTM's peepholes; the default is 0.
_OPTIONAL = (3, 5, 6, 7)


@simplification("drop-zero-states")
def drop_zero_states(editor: ModelEditor) -> int:
    """Drop initial states, biases and peepholes of recurrent layers that are 0, which is the default."""
    dropped = 0
    for node in editor.nodes("GRU", "LSTM", "RNN"):
        for index in _OPTIONAL:
            if index < len(node.inputs) and is_zero(node.inputs[index]):
                node.replace_input_with(index, None)
                dropped += 1
        while node.inputs and node.inputs[-1] is None:
            node.resize_inputs(len(node.inputs) - 1)
    return dropped
