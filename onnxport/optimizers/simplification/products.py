"""Scales, shifts and pads folded into the product before or behind them.

A product is Conv, ConvTranspose, Gemm or MatMul with constants of its own. Sums are taken in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.simplification.graph import (
    LARGE,
    ModelEditor,
    array,
    integers,
    only_use,
    producer,
    rank_of,
    rewrite,
    static,
)
from onnxport.optimizers.simplification.registry import simplification

# Reading a larger weight to scale it costs more than the node that does it.
_LARGEST = 256 * 2**20  # bytes
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_AFFINE = ("Add", "BatchNormalization", "Div", "Mul", "Neg", "Sub")


@simplification("fold-into-products")
def fold_into_products(editor: ModelEditor) -> int:
    """Fold BatchNormalization, and Add, Sub, Mul, Div and Neg by one number or one per channel, into weight and
    bias of the Conv, ConvTranspose or Gemm before them.

    Keeps: Weights that are quantized, above 256 MiB, or above 64 KiB with other readers; a product with other
    readers; types other than float32 and float64.
    """
    return sum(_fold(editor, node) for node in editor.nodes(*_AFFINE))


def _fold(editor: ModelEditor, node: ir.Node) -> int:
    data = _data(node)
    product = producer(data, "Conv", "ConvTranspose", "Gemm")
    if data is None or product is None or not only_use(data):
        return 0
    weight, bias = _constants(product)
    if weight is None or bias is None:
        return 0
    axis = _channel_axis(product)
    groups = product.attributes.get_int("group", 1) if product.op_type == "ConvTranspose" else 1
    channels = weight.shape[axis] * groups
    affine = _affine(node, data, channels, axis=1)
    if affine is None or (product.op_type == "Gemm" and product.attributes.get_float("alpha", 1.0) != 1.0):
        return 0
    scale, shift = affine
    inputs = [product.inputs[0], product.inputs[1]]
    if not np.all(scale == 1):
        scaled = _scale_weight(weight.astype(np.float64), scale, axis, groups)
        inputs[1] = editor.constant(node, scaled.astype(weight.dtype), _name(product, 1))
    moved = bias * scale + shift
    if np.any(moved):
        inputs.append(editor.constant(node, moved.astype(weight.dtype), _name(product, 2)))
    attributes = {
        name: each for name, each in product.attributes.items() if name != "beta"
    }  # of no bias until now
    return rewrite(node, product.op_type, inputs, attributes)


def _name(product: ir.Node, index: int) -> str:
    given = product.inputs[index] if len(product.inputs) > index else None
    return f"{product.outputs[0].name}.bias" if given is None else f"{given.name}.folded"


def _channel_axis(product: ir.Node) -> int:
    """Return the weight's axis that holds the result's channels."""
    if product.op_type == "Gemm":
        return 0 if product.attributes.get_int("transB", 0) else 1
    return 1 if product.op_type == "ConvTranspose" else 0


def _scale_weight(weight: Array, scale: Array, axis: int, groups: int) -> Array:
    if groups == 1:
        return weight * scale.reshape([-1 if each == axis else 1 for each in range(weight.ndim)])
    apart = weight.reshape(groups, -1, *weight.shape[1:])  # (group, its inputs, its channels, kernel)
    return (apart * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)


def _constants(product: ir.Node) -> tuple[Array | None, Array | None]:
    """Return the weight, and the bias as float64 with one number per channel."""
    given = product.inputs[1]
    if given is None or given.const_value is None or given.const_value.nbytes > _LARGEST:
        return None, None
    if len(given.uses()) > 1 and given.const_value.nbytes > LARGE:
        return None, None
    weight = array(given)
    if weight is None or weight.dtype not in (np.float32, np.float64):
        return None, None
    groups = product.attributes.get_int("group", 1) if product.op_type == "ConvTranspose" else 1
    channels = weight.shape[_channel_axis(product)] * groups
    third = product.inputs[2] if len(product.inputs) > 2 else None
    if third is None:
        return weight, np.zeros(channels)
    bias = array(third)
    if bias is None or bias.size not in (1, channels) or (bias.ndim and bias.shape[-1] != bias.size):
        return weight, None
    beta = product.attributes.get_float("beta", 1.0) if product.op_type == "Gemm" else 1.0
    return (
        (weight, None)
        if beta != 1.0
        else (weight, np.broadcast_to(np.float64(bias.reshape(-1)), (channels,)))
    )


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


def _affine(node: ir.Node, data: ir.Value, channels: int, axis: int) -> tuple[Array, Array] | None:
    """Return a node's factors and shifts, each float64 of shape (channels,); None if they are not per channel.

    Args:
        axis: the data's axis of channels.
    """
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
    if full.size not in (1, channels) or full.shape[axis] != full.size:
        return None
    values = np.broadcast_to(np.float64(full.reshape(-1)), (channels,))
    return _PARTS[node.op_type](values, one, none)


_PARTS: dict[str, Callable[[Array, Array, Array], tuple[Array, Array]]] = {
    "Add": lambda values, one, none: (one, values),
    "Sub": lambda values, one, none: (one, -values),
    "Mul": lambda values, one, none: (values, none),
    "Div": lambda values, one, none: (1 / values, none),
}


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
        if widths is None:
            continue
        half = len(widths) // 2
        if any(each < 0 for each in widths) or any(widths[:2]) or any(widths[half : half + 2]):
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
        return (
            list(pad.attributes.get_ints("pads", ())) if not pad.attributes.get_float("value", 0.0) else None
        )
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
    columns = static(matmul.inputs[1])
    dims = static(bias)
    if bias is None or not matrices or columns is None or dims is None or bias.dtype not in _FLOATS:
        return False
    if any(producer(value, "DequantizeLinear") for value in matmul.inputs):
        return False  # integer kernels know a MatMul, and a Gemm with an integer bias only
    return len(dims) <= 2 and (prod(dims) == 1 or (dims[-1] == columns[1] and prod(dims) == columns[1]))


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
