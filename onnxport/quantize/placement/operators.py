"""Operators with integer kernels, as measured in ONNX Runtime.

Any other operator between DequantizeLinear and QuantizeLinear runs in float, and its conversions cost time and accuracy
for nothing; tests/quantize/test_operators.py holds each row to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxport.quantize.placement.plan import FixedGrid


@dataclass(frozen=True)
class Product:
    """An operator that multiplies by a constant."""

    axis: int  # of the weight, along which the results' channels lie
    bias: bool  # whether it takes one


PRODUCTS: Mapping[str, Product] = {
    "Conv": Product(axis=0, bias=True),
    "Gemm": Product(axis=1, bias=True),
    "MatMul": Product(axis=1, bias=False),
}


@dataclass(frozen=True)
class Kernel:
    """An operator with integer inputs and outputs."""

    operands: int | None = 1  # how many inputs are numbers, the first of them; None for all
    shares: bool = False  # whether its operands and its result lie on one grid
    fixed: FixedGrid | None = None  # the grid of its result where that follows from the operator
    folds: bool = False  # whether its kernel saturates where a Relu or Clip follows
    constants: bool = False  # whether an operand may be a constant


_MOVES = Kernel(shares=True)
# 256 steps of 1/256, of which the last is not reached: what TFLite's kernels demand.
_UNIT = FixedGrid(0.0, 255 / 256)

KERNELS: Mapping[str, Kernel] = {
    **dict.fromkeys(
        "DepthToSpace Expand Flatten Gather Identity MaxPool ReduceMax Reshape Resize Slice Split Squeeze Tile "
        "Transpose Unsqueeze".split(),
        _MOVES,
    ),
    # Its kernel puts each operand on the result's grid. Operands have other readers, who would lose by sharing it.
    "Concat": Kernel(operands=None),
    **dict.fromkeys(("Add", "Mul"), Kernel(operands=2, folds=True, constants=True)),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu"), Kernel()),
    **dict.fromkeys(("Sigmoid", "Softmax"), Kernel(fixed=_UNIT)),
}

NO_KERNEL = "ONNX Runtime has no integer kernel for it"
