"""Numbers on a grid: scale * (number - zero point), at run time and in constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxport.validate.runtimes.mil.registry import Array, kernel


@kernel("quantize")
def quantize(
    input: Array, scale: Array, output_dtype: str, zero_point: Any = None, axis: Any = None
) -> Array:
    """clip(round(input / scale) + zero_point), ties to even as MIL's round."""
    steps = np.round(input / _along(scale, input, axis))
    if zero_point is not None:
        steps = steps + _along(zero_point, input, axis).astype(np.float32)
    limits = np.iinfo(output_dtype)
    return np.clip(steps, limits.min, limits.max)


@kernel("dequantize")
def dequantize(input: Array, scale: Array, zero_point: Any = None, axis: Any = None) -> Array:
    numbers = input.astype(np.float32)
    if zero_point is not None:
        numbers = numbers - _along(zero_point, input, axis).astype(np.float32)
    return numbers * _along(scale, input, axis)


@kernel("constexpr_affine_dequantize")
def constexpr_affine_dequantize(quantized_data: Array, zero_point: Array, scale: Array, axis: Any) -> Array:
    return dequantize(quantized_data, scale, zero_point, axis)


@kernel("constexpr_blockwise_shift_scale")
def constexpr_blockwise_shift_scale(data: Array, scale: Array, offset: Any = None) -> Array:
    """scale * (data - offset), of which there is one for each block; the sizes of blocks follow from the shapes."""
    numbers = data.astype(np.float32)
    if offset is not None:
        numbers = numbers - _blocks(np.asarray(offset), data.shape).astype(np.float32)
    return numbers * _blocks(np.asarray(scale), data.shape)


def _along(parameter: Any, data: Array, axis: Any) -> Array:
    """A parameter, of which there is one or one for each place along an axis, in a shape that broadcasts."""
    parameter = np.asarray(parameter)
    if parameter.ndim == 0:
        return parameter
    place = int(axis) % data.ndim
    return parameter.reshape([-1 if each == place else 1 for each in range(data.ndim)])


def _blocks(parameter: Array, shape: tuple[int, ...]) -> Array:
    for axis, size in enumerate(shape):
        parameter = np.repeat(parameter, size // parameter.shape[axis], axis)
    return parameter
