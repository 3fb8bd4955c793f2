"""Scales, shifts and pads folded into the product before or behind them.

A product is Conv, ConvTranspose, Gemm or MatMul with constants of its own. Sums are taken in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.patterns import (
    LARGE,
    array,
    integers,
    is_op,
    number,
    only_use,
    producer,
    rank_of,
    static_dims,
)
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, rewrite, simplification

# Reading a larger weight to scale it costs more than the node that does it.
_LARGEST = 256 * 2**20  # bytes


@simplification("fold-into-products")
def fold_into_products(editor: ModelEditor) -> int:
    """Fold BatchNormalization, and Add, Sub, Mul, Div and Neg by one number or one per channel, into weight and
    bias of the Conv, ConvTranspose or Gemm before them.

    Keeps: Weights that are quantized, above 256 MiB, or above 64 KiB with other readers; a product with other
    readers; types other than float32 and float64.
    """
    return sum(
        _fold(editor, node) for node in editor.nodes("Add", "BatchNormalization", "Div", "Mul", "Neg", "Sub")
    )


def _fold(editor: ModelEditor, node: ir.Node) -> int:
    data = _data(node)
    product = producer(data, "Conv", "ConvTranspose", "Gemm")
    if data is None or product is None or not only_use(data):
        return 0
    weight, bias = _scalable_weight(product), product.inputs[2] if len(product.inputs) > 2 else None
    if weight is None:
        return 0
    axis, groups = int(product.op_type == "ConvTranspose"), 1  # the weight's axis of the result's channels
    if product.op_type == "Gemm":
        axis = 0 if product.attributes.get_int("transB", 0) else 1
        beta = 1.0 if bias is None else product.attributes.get_float("beta", 1.0)
        if product.attributes.get_float("alpha", 1.0) != 1.0 or beta != 1.0:
            return 0
    elif product.op_type == "ConvTranspose":
        groups = product.attributes.get_int("group", 1)
    channels = weight.shape[axis] * groups
    own = np.zeros(1) if bias is None else array(bias)
    if own is None or own.size not in (1, channels) or (own.ndim and own.shape[-1] != own.size):
        return 0
    affine = _affine(node, data, channels)
    if affine is None:
        return 0
    scale, shift = affine
    inputs = [product.inputs[0], product.inputs[1]]
    if not np.all(scale == 1):
        # As (groups, inputs of a group, channels of a group, kernel): the channels' axis is the one after `axis`.
        apart = weight.astype(np.float64).reshape(groups, -1, *weight.shape[1:])
        along = [groups, *(-1 if each == axis else 1 for each in range(weight.ndim))]
        scaled = (apart * scale.reshape(along)).reshape(weight.shape).astype(weight.dtype)
        inputs[1] = editor.constant(node, scaled, f"{product.inputs[1].name}.folded")  # type: ignore[union-attr]
    moved = np.broadcast_to(np.float64(own.reshape(-1)), (channels,)) * scale + shift
    if np.any(moved):
        name = f"{product.outputs[0].name}.bias" if bias is None else f"{bias.name}.folded"
        inputs.append(editor.constant(node, moved.astype(weight.dtype), name))
    attributes = {
        name: each for name, each in product.attributes.items() if name != "beta"
    }  # of no bias until now
    return rewrite(node, product.op_type, inputs, attributes)


def _scalable_weight(product: ir.Node) -> Array | None:
    """Return the constant weight of a product if it may be scaled."""
    given = product.inputs[1]
    if given is None or given.const_value is None or given.const_value.nbytes > _LARGEST:
        return None
    if len(given.uses()) > 1 and given.const_value.nbytes > LARGE:
        return None
    weight = array(given)
    return weight if weight is not None and weight.dtype in (np.float32, np.float64) else None


def _data(node: ir.Node) -> ir.Value | None:
    """Return the operand that a node scales or shifts by constants."""
    if node.op_type == "Neg":
        return node.inputs[0]
    if node.op_type == "BatchNormalization":
        constant = all(array(value) is not None for value in node.inputs[1:])
        plain = not node.attributes.get_int("training_mode", 0) and node.attributes.get_int("spatial", 1) == 1
        written = [value for value in node.outputs[1:] if value.uses() or value.is_graph_output()]
        return node.inputs[0] if constant and plain and not written else None
    first, second = node.inputs
    if array(second) is not None:
        return first
    return second if array(first) is not None and node.op_type in ("Add", "Mul") else None


def _affine(node: ir.Node, data: ir.Value, channels: int) -> tuple[Array, Array] | None:
    """Return a node's factors and shifts, each float64 of shape (channels,); None if they are not per channel."""
    one, none = np.ones(channels), np.zeros(channels)
    if node.op_type == "Neg":
        return -one, none
    if node.op_type == "BatchNormalization":
        gamma, beta, mean, variance = (np.float64(array(value)) for value in node.inputs[1:5])
        scale = gamma / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        return scale, beta - mean * scale
    constant = array(node.inputs[1] if node.inputs[0] is data else node.inputs[0])
    rank = rank_of(data)
    if constant is None or rank is None or constant.ndim > rank or constant.dtype.kind != "f":
        return None
    full = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    if full.size not in (1, channels) or full.shape[1] != full.size:
        return None
    values = np.broadcast_to(np.float64(full.reshape(-1)), (channels,))
    if node.op_type in ("Add", "Sub"):
        return one, values if node.op_type == "Add" else -values
    return values if node.op_type == "Mul" else 1 / values, none


@simplification("fold-pads")
def fold_pads(editor: ModelEditor) -> int:
    """Fold a Pad with zeros into the Conv behind it.

    Keeps: Pads of batch or channels, with other values or negative, and a Conv with auto_pad.
    """
    folded = 0
    for node in editor.nodes("Conv"):
        pad = producer(node.inputs[0], "Pad")
        if pad is None or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            continue
        widths = _zeros_around(pad)
        half = len(widths or ()) // 2
        if widths is None or min(widths, default=0) < 0 or any((*widths[:2], *widths[half : half + 2])):
            continue
        around = [*widths[2:half], *widths[half + 2 :]]
        own = list(node.attributes.get_ints("pads", ())) or [0] * len(around)
        node.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(around, own, strict=True)])
        node.attributes.pop("auto_pad", None)
        node.replace_input_with(0, pad.inputs[0])
        folded += 1
    return folded


def _zeros_around(pad: ir.Node) -> list[int] | None:
    """Return how many zeros a Pad adds before and behind each axis; None if it adds others."""
    if pad.attributes.get_string("mode", "constant") != "constant":
        return None
    if "pads" in pad.attributes:  # before opset 11
        fills = pad.attributes.get_float("value", 0.0)
        return None if fills else list(pad.attributes.get_ints("pads", ()))
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    if (len(pad.inputs) > 3 and pad.inputs[3] is not None) or len(pad.inputs) < 2:
        return None
    filled = array(value)
    if value is not None and (filled is None or np.any(filled)):
        return None
    return integers(pad.inputs[1])


@simplification("fuse-gemm")
def fuse_gemm(editor: ModelEditor) -> int:
    """Replace a MatMul of two matrices and the Add of a bias by one Gemm.

    Keeps: Products of more than two dimensions, of types other than floats, and of quantized values.
    """
    fused = 0
    for node in editor.nodes("Add"):
        for product, bias in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
            matmul = producer(product, "MatMul")
            if matmul is None or not only_use(product) or not _takes_bias(matmul, bias):
                continue
            fused += rewrite(node, "Gemm", [*matmul.inputs, bias])
            break
    return fused


def _takes_bias(matmul: ir.Node, bias: ir.Value | None) -> bool:
    """Return whether a Gemm can add the bias: two matrices, and one row or number, known to be no larger."""
    matrices = all(rank_of(value) == 2 for value in matmul.inputs)
    columns = static_dims(matmul.inputs[1])
    dims = static_dims(bias)
    if bias is None or not matrices or columns is None or dims is None or bias.dtype not in _FLOATS:
        return False
    if any(producer(value, "DequantizeLinear") for value in matmul.inputs):
        return False  # integer kernels know a MatMul, and a Gemm with an integer bias only
    return len(dims) <= 2 and (prod(dims) == 1 or (dims[-1] == columns[1] and prod(dims) == columns[1]))


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


# ---- scales by one number: to a weight behind or before them, through views, Transpose, Mul and Add


_TRANSPARENT = ("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_STEPS = 6
Change = Callable[[], None]


@simplification("fold-scales")
def fold_scales(editor: ModelEditor) -> int:
    """Fold a Mul or Div by one number into the weight of the MatMul, Gemm or Conv before or behind it, through
    views, Transpose, Mul and the Add of a constant.

    Keeps: A path or a weight with other readers, quantized weights, and types other than float32 and float64.
    """
    return sum(_fold_scale(editor, node) for node in editor.nodes("Mul", "Div"))


def _fold_scale(editor: ModelEditor, node: ir.Node) -> int:
    data, factor = _split_scale(node)
    if data is None or factor is None or not np.isfinite(factor) or factor in (0, 1):
        return 0
    changes = _upward(editor, data, factor) or _downward(editor, node.outputs[0], factor)
    if changes is None or not bypass(node, data):
        return 0
    for change in changes:
        change()
    return 1


def _split_scale(node: ir.Node) -> tuple[ir.Value | None, float | None]:
    """Return the operand and the factor of a Mul or Div by one number."""
    first, second = node.inputs
    if node.outputs[0].dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None, None
    data, factor = (first, number(second)) if number(second) is not None else (second, number(first))
    if data is None or data.shape is None or data.const_value is not None:
        return None, None
    constant = node.inputs[1] if data is first else node.inputs[0]
    if constant is None or constant.shape is None or len(constant.shape) > len(data.shape):
        return None, None
    if node.op_type == "Div":
        return (data, 1 / factor) if data is first and factor else (None, None)
    return data, factor


def _upward(editor: ModelEditor, value: ir.Value, factor: float) -> list[Change] | None:
    """Return the changes that scale the weight of the product behind which the value lies."""
    changes: list[Change] = []
    current: ir.Value | None = value
    for _ in range(_STEPS):
        node = producer(current)
        if node is None or not only_use(current):
            return None
        if node.op_type in _TRANSPARENT:
            current = node.inputs[0]
        elif node.op_type == "Add":
            constants = [index for index, each in enumerate(node.inputs) if array(each) is not None]
            if len(constants) != 1:
                return None
            changes.append(_scale_constant(editor, node, constants[0], factor))
            current = node.inputs[1 - constants[0]]
        elif node.op_type in ("Conv", "Gemm", "MatMul"):
            found = _weight(editor, node, factor)
            if found is None or len(node.inputs) > 2:
                return None  # a bias of its own: fold-into-products knows how
            return [*changes, found]
        else:
            return None
    return None


def _downward(editor: ModelEditor, value: ir.Value, factor: float) -> list[Change] | None:
    """Return the changes that scale the weight of the product that reads the value."""
    for _ in range(_STEPS):
        if not only_use(value):
            return None
        ((node, index),) = value.uses()
        if is_op(node, "Conv", "Gemm", "MatMul") and index == 0:
            change = _weight(editor, node, factor)
            return None if change is None else [change]
        if not is_op(node, *_TRANSPARENT, "Mul") or (index and node.op_type != "Mul"):
            return None
        value = node.outputs[0]
    return None


def _weight(editor: ModelEditor, product: ir.Node, factor: float) -> Change | None:
    """Return the change that scales a product's weight, or the scales of Mul(Cast(integers), scales)."""
    decoded = producer(product.inputs[1], "Mul")
    if decoded is None or not only_use(product.inputs[1]):
        return None if _scalable_weight(product) is None else _scale_constant(editor, product, 1, factor)
    for index, each in enumerate(decoded.inputs):
        if array(each) is not None and producer(decoded.inputs[1 - index], "Cast") is not None:
            return _scale_constant(editor, decoded, index, factor)
    return None


def _scale_constant(editor: ModelEditor, node: ir.Node, index: int, factor: float) -> Change:
    def change() -> None:
        old = node.inputs[index]
        values = array(old)
        assert old is not None
        assert values is not None
        scaled = (values.astype(np.float64) * factor).astype(values.dtype)
        node.replace_input_with(index, editor.constant(node, scaled, f"{old.name}.scaled"))

    return change
