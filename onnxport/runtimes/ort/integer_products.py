"""The operators that multiply integers, and the indices of their operands.

On x86 CPUs without VNNI, ONNX Runtime multiplies uint8 activations by int8 weights with VPMADDUBSW, which adds two
products in 16 bits and saturates (255 * 127 * 2 > 32767). Measured with ONNX Runtime 1.31.1 restricted to AVX2
(tests/runtimes/integer_products.py): of the operators in OPERANDS, uint8 by int8 saturates and every other mix is
exact. ConvInteger saturates for int8 by uint8 only, which no tool writes; depthwise QLinearConv and MatMulNBits never.

Light on purpose: the process of a float model imports only this of the change to exact integers.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.onnx_bytes import spans_without_numbers

OFFSET = 128  # from int8 to uint8
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Operands:
    """The indices of a product's operands among a node's inputs."""

    activation: int | None  # the uint8 operand; None where the operator quantizes it itself
    activation_zero_point: int | None  # its zero point, which has its type; None where there is none
    weights: tuple[tuple[int, int], ...]  # int8 weights, each with its zero point


# (domain, operator) -> operands.
OPERANDS: Mapping[tuple[str, str], Operands] = {
    ("", "MatMulInteger"): Operands(0, 2, ((1, 3),)),
    ("", "QLinearConv"): Operands(0, 2, ((3, 5),)),
    ("", "QLinearMatMul"): Operands(0, 2, ((3, 5),)),
    (_MICROSOFT, "QLinearConv"): Operands(0, 2, ((3, 5),)),
    ("com.ms.internal.nhwc", "QLinearConv"): Operands(0, 2, ((3, 5),)),
    (_MICROSOFT, "QGemm"): Operands(0, 2, ((3, 5),)),
    (_MICROSOFT, "MatMulIntegerToFloat"): Operands(0, 4, ((1, 5),)),
    (_MICROSOFT, "QAttention"): Operands(0, 6, ((1, 7),)),
    (_MICROSOFT, "DynamicQuantizeMatMul"): Operands(None, None, ((1, 3),)),
    (_MICROSOFT, "DynamicQuantizeLSTM"): Operands(None, None, ((1, 9), (2, 11))),
}
# Operators that ONNX Runtime fuses with the DequantizeLinear of their operands; the second one is the weight.
FUSED = frozenset(("Conv", "MatMul", "Gemm"))
DEQUANTIZE = "DequantizeLinear"
_SPELLED = tuple(name.encode() for name in {*(op for _, op in OPERANDS), DEQUANTIZE})


def to_unsigned(values: Array) -> Array:
    """Convert int8 numbers to uint8, each 128 higher."""
    return np.asarray(values.view(np.uint8) ^ np.uint8(OFFSET))


def may_saturate(domain: str, op: str) -> bool:
    """Return whether an operator may multiply integers whose sums saturate, or dequantizes what such a one reads."""
    return op == DEQUANTIZE or (domain, op) in OPERANDS


def holds_integer_products(source: Path | bytes) -> bool:
    """Return whether a model may have an operator that saturates, by a search for names in its bytes."""
    if isinstance(source, bytes):
        return _names_any(source)
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _names_any(content)


def _names_any(content: bytes | mmap.mmap) -> bool:
    spans = spans_without_numbers(content)
    return any(content.find(name, *span) >= 0 for span in spans for name in _SPELLED)
