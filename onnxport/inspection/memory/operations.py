"""Multiply-accumulate operations of a node, from the shapes of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from onnxport.formats.graph import Node


def macs_of(node: Node) -> int:
    """Return the multiply-accumulate operations of one run; 0 for other operators and where a shape is not known."""
    count = _COUNTS.get(node.op)
    if count is None:
        return 0
    try:
        return count(node)
    except (IndexError, KeyError, ValueError):  # operands without sizes
        return 0


def _shape(node: Node, place: int) -> tuple[int, ...]:
    tensor = node.inputs[place]
    return _sizes(tensor.shape if tensor else None)


def _made(node: Node) -> int:
    tensor = node.outputs[0]
    return prod(_sizes(tensor.shape if tensor else None))


def _sizes(shape: tuple[Any, ...] | None) -> tuple[int, ...]:
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise ValueError("no sizes")
    return shape


def _convolution(weight: int) -> Callable[[Node], int]:
    """Kernel [outputs, inputs of the group, ...]: a product with each of its elements for each output."""
    return lambda node: _made(node) * prod(_shape(node, weight)[1:])


def _transposed(node: Node) -> int:
    return prod(_shape(node, 0)) * prod(_shape(node, 1)[1:])


def _product(left: int) -> Callable[[Node], int]:
    def count(node: Node) -> int:
        is_transposed = node.attributes.get("transA", 0) or node.attributes.get("adjX", False)
        return _made(node) * _shape(node, left)[-2 if is_transposed else -1]

    return count


def _recurrence(node: Node) -> int:
    steps = prod(_shape(node, 0)[:2])
    return steps * (prod(_shape(node, 1)) + prod(_shape(node, 2)))


def _einsum(node: Node) -> int:
    operands = [_shape(node, place) for place in range(len(node.inputs))]
    terms = str(node.attributes["equation"]).replace(" ", "").split("->")[0].split(",")
    if len(terms) < 2 or any("." in term for term in terms):
        return 0
    sizes = {
        label: size for term, shape in zip(terms, operands, strict=True)
        for label, size in zip(term, shape, strict=True)
    }  # fmt: skip
    return prod(sizes.values())


_COUNTS: Mapping[str, Callable[[Node], int]] = {
    # ONNX and ONNX Runtime
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv", "FusedConv"), _convolution(1)),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    **dict.fromkeys(("FusedGemm", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger"), _product(0)),
    **dict.fromkeys(("MatMulIntegerToFloat", "QGemm", "QLinearMatMul"), _product(0)),
    "MatMulNBits": lambda node: _made(node) * int(node.attributes["K"]),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrence),
    "Einsum": _einsum,
    # TFLite: kernels are [outputs, height, width, inputs], of depthwise ones [1, height, width, outputs]
    "CONV_2D": _convolution(1),
    "DEPTHWISE_CONV_2D": lambda node: _made(node) * prod(_shape(node, 1)[1:3]),
    "CONV_3D": lambda node: _made(node) * prod(_shape(node, 1)[:4]),
    "TRANSPOSE_CONV": lambda node: prod(_shape(node, 2)) * prod(_shape(node, 1)[:3]),
    "FULLY_CONNECTED": lambda node: _made(node) * _shape(node, 1)[-1],
    "BATCH_MATMUL": _product(0),
}
