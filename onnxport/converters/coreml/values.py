"""ONNX values in MIL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxport.converters.coreml.library import Var
from onnxport.converters.coreml.quantized import Grid
from onnxport.core.arrays import Array

LARGEST_RANK = 5  # of MIL's tensors


@dataclass(frozen=True)
class Row:
    """The elements of a value of more dimensions than MIL holds (high_rank.py).

    Attributes:
        held: one dimension of them all.
        sizes: of each of the value's own dimensions: a number, Integers, or None for at most one that follows.
    """

    held: Value
    sizes: tuple[Any, ...]


@dataclass
class Value:
    """One ONNX value: a constant of the model, or a MIL variable.

    MIL has fewer types than ONNX: integers of every width are int32 in it, float64 is float32, and with
    `--precision fp16` floats are fp16. `dtype` stays ONNX's own.

    Attributes:
        shape: sizes, None where a dimension is open.
        dtype: ONNX's element type as NumPy knows it.
        constant: the numbers, if they are known now; of ONNX's dtype.
        copies: MIL type name ("fp16", "fp32", "int32", "bool") to the variable that holds the value in it.
        quantized: the numbers, scales and zero points that a float constant was made of.
        row: in place of copies where there are more dimensions than MIL holds.
        is_natural: whether an integer is surely not negative, so that an index of it needs no wrapping.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    constant: Array | None = None
    copies: dict[str, Var] = field(default_factory=dict)
    is_natural: bool = False
    quantized: Grid | None = None
    row: Row | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f" or self.dtype.name == "bfloat16"

    @property
    def is_integer(self) -> bool:
        return self.dtype.kind in "iu"

    @property
    def var(self) -> Var:
        """The variable that was there first."""
        return next(iter(self.copies.values()))

    def swap_axes(self) -> Value:
        """Return a constant matrix with its axes exchanged, stored as this one is."""
        assert self.constant is not None
        kept = None if self.quantized is None else self.quantized.transpose((1, 0))
        matrix = np.ascontiguousarray(self.constant.T)
        return Value(matrix.shape, self.dtype, constant=matrix, quantized=kept)


def empty(shape: tuple[int | None, ...], dtype: np.dtype[Any]) -> Value:
    """Return a tensor without elements: Core ML holds none, but Concat, for one, ignores it."""
    return Value(shape, dtype, constant=np.zeros([dim or 0 for dim in shape], dtype))
