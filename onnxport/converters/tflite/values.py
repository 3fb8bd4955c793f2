"""ONNX values during lowering, and the tensors made of them so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from onnxport.converters.tflite.layout import Permutation, Shape, identity
from onnxport.converters.tflite.quantized.quantization import QuantizedConstant
from onnxport.converters.tflite.tensors import Tensor
from onnxport.core.arrays import Array

_INT32_MAX = np.iinfo(np.int32).max


@dataclass(eq=False)
class Value:
    """An ONNX value during lowering; one that is neither constant, made nor dequantized has a copy."""

    shape: Shape  # logical (ONNX) dimensions, None where open
    dtype: np.dtype[Any]
    _: KW_ONLY
    constant: Array | None = None  # in logical order, if the value is known at conversion
    copies: dict[Permutation, Tensor] = field(default_factory=dict)  # physical tensors so far, by axis order
    make: Callable[[], Tensor] | None = None  # makes the tensor in logical order when it is first used
    scrambled: Scrambled | None = None
    # For a value that goes to DequantizeLinear only, what that makes of it; it has no tensors.
    dequantized: Value | None = None
    quantized: QuantizedConstant | None = None  # for a constant that the model stores quantized, how

    @cached_property
    def is_size(self) -> bool:
        """Its elements are sizes of tensors or follow from such, which TFLite keeps in int32."""
        if self.constant is None or self.dtype.kind not in "iu":
            return False
        return bool(((self.constant >= -_INT32_MAX) & (self.constant <= _INT32_MAX)).all())

    @cached_property
    def is_natural(self) -> bool:
        """Its elements are integers, and none is negative."""
        if self.constant is not None and self.dtype.kind in "iu":
            return bool((self.constant >= 0).all())
        return self.dtype.kind in "bu"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def order(self) -> Permutation:
        """The axis order that the value was computed in."""
        return next(iter(self.copies), identity(self.rank))


def constant(array: Array, quantized: QuantizedConstant | None = None) -> Value:
    return Value(array.shape, array.dtype, constant=array, quantized=quantized)


def scalar(number: float, dtype: np.dtype[Any] | type) -> Value:
    return constant(np.array(number, dtype))


def with_unit_axis(value: Value, axis: int) -> Value:
    """Insert an axis of size 1 before `axis` of a constant."""
    assert value.constant is not None
    quantized = None if value.quantized is None else value.quantized.with_unit_axis(axis)
    return constant(np.expand_dims(value.constant, axis), quantized)


@dataclass(frozen=True, eq=False)
class Scrambled:
    """A [N, K] tensor with its columns permuted: column j holds the wanted column `index[j]`.

    A channels-last feature map flattened for a fully connected layer is one: permuting the layer's weights
    at conversion is free, transposing the features at run time is not.
    """

    tensor: Tensor
    index: Array
