"""ONNX values during lowering, and the tensors made of them so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxport.converters.tflite.layout import Permutation, Shape, identity
from onnxport.converters.tflite.quantized.quantization import QuantizedConstant
from onnxport.converters.tflite.tensors import Tensor
from onnxport.core.arrays import Array

_INT32_MAX = np.iinfo(np.int32).max


class Value:
    """An ONNX value during lowering.

    Attributes:
        shape: logical (ONNX) dimensions, None where open.
        dtype: element type.
        constant: the array in logical order if the value is known at conversion.
        copies: the physical tensors made so far, by axis order; for a value that is not constant at least
            one, unless `make` is given.
        make: makes the tensor in logical order when it is first used.
        scrambled: see Scrambled.
        dequantized: for a value that goes to DequantizeLinear only, what that makes of it; it has no tensors.
        quantized: for a constant that the model stores quantized, how.
        is_size: its elements are sizes of tensors or follow from such, which TFLite keeps in int32.
        is_natural: its elements are integers, and none is negative.
    """

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: np.dtype[Any] | type,
        *,
        constant: Array | None = None,
        copies: dict[Permutation, Tensor] | None = None,
        make: Callable[[], Tensor] | None = None,
        scrambled: Scrambled | None = None,
        quantized: QuantizedConstant | None = None,
        dequantized: Value | None = None,
    ) -> None:
        self.shape: Shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.constant = constant
        self.copies = copies if copies is not None else {}
        self.make = make
        self.scrambled = scrambled
        self.quantized = quantized
        self.dequantized = dequantized
        self._is_size = self._is_natural = False

    @property
    def is_size(self) -> bool:
        if self.constant is not None:
            if self.dtype.kind not in "iu":
                return False
            return bool(((self.constant >= -_INT32_MAX) & (self.constant <= _INT32_MAX)).all())
        return self._is_size

    @is_size.setter
    def is_size(self, value: bool) -> None:
        self._is_size = value

    @property
    def is_natural(self) -> bool:
        if self.constant is not None and self.dtype.kind in "iu":
            return bool((self.constant >= 0).all())
        return self.dtype.kind in "bu" or self._is_natural

    @is_natural.setter
    def is_natural(self, value: bool) -> None:
        self._is_natural = value

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


class Scrambled:
    """A [N, K] tensor with its columns permuted: column j holds the wanted column `index[j]`.

    A channels-last feature map flattened for a fully connected layer is one: permuting the layer's weights
    at conversion is free, transposing the features at run time is not.
    """

    def __init__(self, tensor: Tensor, index: Array) -> None:
        self.tensor, self.index = tensor, index
