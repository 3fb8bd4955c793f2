"""Scales and shifts of channels, folded into the convolution before or behind them.

ONNX Runtime's basic optimizations leave single numbers, and what stands behind a ConvTranspose or before a Conv. Each
would be rounded to 8 bits once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer

Doubles = np.ndarray[Any, np.dtype[np.float64]]

# Operator to the axis of its weight along which the result's channels lie.
_CHANNELS = {"Conv": 0, "ConvTranspose": 1}


def fold_into_products(graph: ir.Graph) -> bool:
    """Fold everything that can be folded; return whether there was any."""
    changed = False
    for node in list(graph):
        changed |= _fold_backward(graph, node)
    for node in list(graph):
        changed |= _fold_forward(graph, node)
    return changed


def _fold_backward(graph: ir.Graph, node: ir.Node) -> bool:
    """Fold Mul or Add of a constant, or BatchNormalization, into the weight and bias of the Conv before it."""
    data = _data(node)
    product = None if data is None else data.producer()
    if data is None or product is None or not _is_foldable(product):
        return False
    if len(data.uses()) != 1 or data.is_graph_output():
        return False
    affine = _affine(node, _channels(product))
    if affine is None:
        return False
    scale, shift = affine
    axis = _CHANNELS[product.op_type]
    weight = _array(product.inputs[1])
    along = [-1 if each == axis else 1 for each in range(weight.ndim)]
    if not np.all(scale == 1):
        _set_constant(graph, product, 1, weight * scale.reshape(along))
    _set_constant(graph, product, 2, _bias(product) * scale + shift)
    result, old = product.outputs[0], node.outputs[0]
    name, old.name = old.name, None
    result.name = name
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


def _fold_forward(graph: ir.Graph, node: ir.Node) -> bool:
    """Fold Add of a constant into the bias of the unpadded Conv behind it."""
    if node.domain != "" or node.op_type != "Add":
        return False
    data, result = _data(node), node.outputs[0]
    users = [user for user, _ in result.uses()]
    if data is None or not users or result.is_graph_output():
        return False
    if not all(_is_foldable(user) and _is_unpadded(user) and user.inputs[0] is result for user in users):
        return False
    groups = users[0].attributes.get_int("group", 1)
    affine = _affine(node, _array(users[0].inputs[1]).shape[1] * groups)
    if affine is None or any(user.attributes.get_int("group", 1) != groups for user in users):
        return False
    for user in users:
        weight = _array(user.inputs[1])
        sums = weight.sum(
            axis=tuple(range(2, weight.ndim)), dtype=np.float64
        )  # (channels, channels of a group)
        shifts = affine[1].reshape(groups, -1)
        made = np.einsum("gci,gi->gc", sums.reshape(groups, -1, sums.shape[1]), shifts).reshape(-1)
        _set_constant(graph, user, 2, _bias(user) + made)
    result.replace_all_uses_with(data)
    graph.remove(node, safe=True)
    return True


def _data(node: ir.Node) -> ir.Value | None:
    """Return what a node scales or shifts; None for other nodes."""
    if node.domain != "":
        return None
    if node.op_type == "BatchNormalization":
        constant = all(value is not None and value.const_value is not None for value in node.inputs[1:])
        return node.inputs[0] if constant and len(node.outputs) == 1 else None
    if node.op_type not in ("Mul", "Add"):
        return None
    first, second = node.inputs
    if first is None or second is None or (first.const_value is None) == (second.const_value is None):
        return None
    return second if second.const_value is None else first


def _affine(node: ir.Node, channels: int) -> tuple[Doubles, Doubles] | None:
    """Return a node's factor and summand per channel, (channels,) float64; None where it has none."""
    if node.op_type == "BatchNormalization":
        gamma, beta, mean, variance = (np.float64(_array(value)) for value in node.inputs[1:])
        scale = gamma / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        return scale, beta - mean * scale
    data = _data(node)
    assert data is not None
    constant = _array(node.inputs[0] if node.inputs[1] is data else node.inputs[1])
    rank = None if data.shape is None else len(data.shape)
    if rank is None or constant.ndim > rank or constant.dtype != np.float32:
        return None
    full = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    if full.size not in (1, channels) or full.shape[1] != full.size:
        return None
    values = np.broadcast_to(np.float64(full.reshape(-1)), (channels,))
    return (values, np.zeros(channels)) if node.op_type == "Mul" else (np.ones(channels), values)


def _is_foldable(node: ir.Node) -> bool:
    """Return whether a node is a convolution with float32 constants of its own."""
    if node.domain != "" or node.op_type not in _CHANNELS:
        return False
    if node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) != 1:
        return False
    constants = [value for value in node.inputs[1:] if value is not None]
    return all(value.const_value is not None and value.dtype == ir.DataType.FLOAT for value in constants)


def _is_unpadded(node: ir.Node) -> bool:
    if node.op_type != "Conv" or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    return not any(node.attributes.get_ints("pads", ()))


def _channels(product: ir.Node) -> int:
    return int(_array(product.inputs[1]).shape[_CHANNELS[product.op_type]])


def _array(value: ir.Value | None) -> Any:
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def _bias(product: ir.Node) -> Any:
    given = product.inputs[2] if len(product.inputs) > 2 else None
    return np.zeros(_channels(product)) if given is None else np.float64(_array(given))


def _set_constant(graph: ir.Graph, node: ir.Node, index: int, array: Any) -> None:
    """Give a node its own constant, and remove an unused old one."""
    node.resize_inputs(max(index + 1, len(node.inputs)))
    old = node.inputs[index]
    name = f"{node.outputs[0].name}.{'weight' if index == 1 else 'bias'}"
    while name in graph.initializers:
        name += "_"
    new = add_initializer(graph, name, np.asarray(array, np.float32))
    node.replace_input_with(index, new)
    if old is not None and not old.uses() and not old.is_graph_input():
        del graph.initializers[old.name or ""]
