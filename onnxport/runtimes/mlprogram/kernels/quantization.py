"""Quantized numbers: quantize and dequantize at run time, the constexpr operators when a program is loaded."""

from __future__ import annotations

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Undefined, kernel, register


@kernel("quantize")
def quantize(
    input: Array,
    scale: Array,
    output_dtype: str,
    call: Call,
    zero_point: Array | None = None,
    axis: Array | None = None,
) -> Array:
    """Return clip(round(input / scale) + zero_point), with halves to even as everywhere in MIL."""
    if call.strict and np.isnan(input).any():
        raise Undefined("quantize of NaN")
    quotient = np.round(input / _along(scale, input, axis))
    if zero_point is not None:
        quotient = quotient + _along(zero_point, input, axis).astype(np.float32)
    limits = np.iinfo(output_dtype)
    return np.clip(quotient, limits.min, limits.max).astype(output_dtype)


@kernel("dequantize")
def dequantize(
    input: Array, scale: Array, zero_point: Array | None = None, axis: Array | None = None
) -> Array:
    shifted = input.astype(np.float32)
    if zero_point is not None:
        shifted = shifted - _along(zero_point, input, axis).astype(np.float32)
    return np.asarray(_along(scale, input, axis) * shifted)


_TYPES = {"fp32": "float32", "fp16": "float16"}
register(
    {
        "constexpr_affine_dequantize": lambda quantized_data, zero_point, scale, axis: dequantize(
            quantized_data, scale, zero_point, axis
        ),
        "constexpr_cast": lambda source_val, output_dtype: source_val.astype(
            _TYPES.get(output_dtype, output_dtype)
        ),
    }
)


@kernel("constexpr_blockwise_shift_scale")
def constexpr_blockwise_shift_scale(data: Array, scale: Array, offset: Array | None = None) -> Array:
    shifted = data.astype(np.float32)
    if offset is not None:
        shifted = shifted - _blocks(offset, data.shape).astype(np.float32)
    return np.asarray(_blocks(scale, data.shape) * shifted)


@kernel("constexpr_lut_to_dense")
def constexpr_lut_to_dense(
    indices: Array, lut: Array, shape: Array | None = None, vector_axis: Array | None = None
) -> Array:
    """Look up indices: packed, in one table (iOS16, with `shape`), or in a table per block (iOS18)."""
    if shape is not None:
        sizes = [int(each) for each in shape]
        return lut[_unpack(indices, len(lut).bit_length() - 1, int(np.prod(sizes)))].reshape(sizes)
    palettes, vector = lut.shape[-2:]
    tables = lut.reshape(-1, palettes, vector)
    # The table of each element; blocks are numbered as the tables lie in memory.
    which = _blocks(np.arange(len(tables)).reshape(lut.shape[:-2]), indices.shape)
    found = tables[which, indices.astype(np.int64)]
    if vector == 1 or vector_axis is None:
        return found[..., 0]
    along = int(vector_axis) % indices.ndim
    grown = [size * vector if axis == along else size for axis, size in enumerate(indices.shape)]
    return np.moveaxis(found, -1, along + 1).reshape(grown)


@kernel("constexpr_sparse_to_dense")
def constexpr_sparse_to_dense(nonzero_data: Array, mask: Array, shape: Array | None = None) -> Array:
    """Write the data to the mask's ones, in order; before iOS18 the mask is packed and `shape` is given."""
    if shape is not None:
        sizes = [int(each) for each in shape]
        mask = _unpack(mask, 1, int(np.prod(sizes))).reshape(sizes)
    dense = np.zeros(mask.shape, nonzero_data.dtype)
    dense[mask != 0] = nonzero_data
    return dense


@kernel("constexpr_lut_to_sparse")
def constexpr_lut_to_sparse(
    indices_mask: Array, indices_nonzero_data: Array, lut: Array, vector_axis: Array | None = None
) -> tuple[Array, Array]:
    dense = constexpr_lut_to_dense(
        constexpr_sparse_to_dense(indices_nonzero_data, indices_mask), lut, vector_axis=vector_axis
    )
    mask, vector = indices_mask, lut.shape[-1]
    if vector > 1 and vector_axis is not None:
        mask = np.repeat(mask, vector, axis=int(vector_axis))
    return mask, dense[mask != 0]


@kernel("constexpr_sparse_blockwise_shift_scale")
def constexpr_sparse_blockwise_shift_scale(
    data_mask: Array, nonzero_data: Array, scale: Array, offset: Array | None = None
) -> tuple[Array, Array]:
    dense = constexpr_blockwise_shift_scale(constexpr_sparse_to_dense(nonzero_data, data_mask), scale, offset)
    return data_mask, dense[data_mask != 0]


def _along(values: Array, data: Array, axis: Array | None) -> Array:
    """Reshape a vector to lie along `axis` of the data; leave a scalar."""
    if values.ndim == 0 or axis is None:
        return values
    shape = [1] * data.ndim
    shape[int(axis)] = -1
    return values.reshape(shape)


def _blocks(values: Array, shape: tuple[int, ...]) -> Array:
    """Repeat each value over its block of `shape`."""
    for axis, size in enumerate(shape):
        if 1 < values.shape[axis] < size:
            values = np.repeat(values, size // values.shape[axis], axis)
    return np.broadcast_to(values, shape)


def _unpack(data: Array, bits: int, count: int) -> Array:
    """Unpack `count` numbers of `bits` bits; the first is in the lowest bits of the first byte."""
    flags = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
    return np.asarray((flags.astype(np.int64) << np.arange(bits)).sum(axis=1))
