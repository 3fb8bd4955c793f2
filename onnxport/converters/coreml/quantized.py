"""Quantized weights: constants that the package stores as integers and scales, as the model does.

Core ML dequantizes them when it loads the model (or later): constexpr_affine_dequantize from iOS16 on for 8 bits,
constexpr_blockwise_shift_scale from iOS18 on for 4 bits and for blocks. All others are stored as floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onnxport.converters.coreml.library import Var, mb, types
from onnxport.core.arrays import Array

# float16's rounding error, relative to the largest scale of a tensor; smaller scales may be off by as much.
_ROUNDING = 2.0**-11
# Fewer numbers are smaller as floats than with an operator of their own.
_FEW = 64


@dataclass(frozen=True)
class Grid:
    """Numbers of a quantized type, with scales and zero points of the same rank.

    Along each axis, these have the size 1, the axis' own size, or a divisor of it.

    Attributes:
        dtype: ONNX's type of the numbers.
    """

    numbers: Array
    dtype: str
    scale: Array
    zero_point: Array | None

    def transpose(self, order: tuple[int, ...]) -> Grid:
        points = None if self.zero_point is None else self.zero_point.transpose(order)
        numbers, scale = self.numbers.transpose(order), self.scale.transpose(order)
        return replace(self, numbers=numbers, scale=scale, zero_point=points)

    @property
    def axis(self) -> int | None:
        """The one axis along which each index has its own scale; None if there is no such axis."""
        axes = [axis for axis, size in enumerate(self.scale.shape) if size > 1]
        is_one = len(axes) == 1 and self.scale.shape[axes[0]] == self.numbers.shape[axes[0]]
        return axes[0] if is_one else None


def holds_scale(scale: Array) -> bool:
    """Return whether a tensor's scales lose no more than rounding in float16."""
    with np.errstate(over="ignore"):
        held = scale.astype(np.float16).astype(np.float64)
    return bool((np.abs(held - scale) <= _ROUNDING * np.abs(scale).max(initial=0)).all())


def emit_dequantize(grid: Grid, type_: str, ios: int, name: str) -> Var | None:
    """Emit the floats of `grid` as "fp16" or "fp32" from its numbers; None if floats are the better storage.

    Args:
        ios: the target's number, as 17 for iOS17.
    """
    if (
        grid.numbers.size < _FEW
        or grid.numbers.ndim == 0
        or (type_ == "fp16" and not holds_scale(grid.scale))
    ):
        return None
    scale = grid.scale.astype(np.float16 if type_ == "fp16" else np.float32)
    is_plain = grid.scale.size == 1 or grid.axis is not None
    if grid.dtype in ("int8", "uint8") and is_plain and ios >= 16:
        return _affine(grid, scale, name)
    if grid.dtype in ("int4", "uint4", "int8", "uint8") and ios >= 18:
        return _blockwise(grid, scale, name)
    return None


def _affine(grid: Grid, scale: Array, name: str) -> Var:
    points = np.zeros(grid.scale.shape) if grid.zero_point is None else grid.zero_point
    shape = () if grid.axis is None else (-1,)
    return mb.constexpr_affine_dequantize(
        quantized_data=np.ascontiguousarray(grid.numbers),
        zero_point=points.astype(grid.dtype).reshape(shape)[()],
        scale=scale.reshape(shape)[()],
        axis=np.int32(grid.axis or 0),
        name=name,
    )


def _blockwise(grid: Grid, scale: Array, name: str) -> Var | None:
    if any(size % count for size, count in zip(grid.numbers.shape, scale.shape, strict=True)):
        return None  # a last block that is not full
    dtype = types.nptype_from_builtin(types.string_to_builtin(grid.dtype))
    held = np.int8 if grid.dtype.startswith("int") else np.uint8
    numbers = np.ascontiguousarray(grid.numbers.astype(held)).astype(dtype)
    points = None if grid.zero_point is None else grid.zero_point.astype(held).astype(dtype)
    return mb.constexpr_blockwise_shift_scale(data=numbers, scale=scale, offset=points, name=name)
