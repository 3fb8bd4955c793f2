"""Read the weight file of a package: blobs behind 64-byte headers, mapped from disk.

Layout (coremltools, mlmodel/src/MILBlob/Blob/StorageFormat.hpp): a header has 0xDEADBEEF, the element type, the size
in bytes and the offset of the data. Numbers of fewer than 8 bits are packed, the first in the lowest bits.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

from onnxport.core.arrays import Array

_HEADER = struct.Struct("<IIQQQ")
_SENTINEL = 0xDEADBEEF
# Packed types -> bits.
_PACKED = {"uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6, "int4": 4}


def read_blob(file: Path, offset: int, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the array whose header is at `offset`, packed numbers as uint8 or int8; ValueError if it does not fit."""
    if file.stat().st_size < offset + _HEADER.size:
        raise ValueError(f"{file.name} is truncated: it ends before the weights at {offset}")
    mapped = np.memmap(file, np.uint8, "r")
    sentinel, _, size, start, _ = _HEADER.unpack(mapped[offset : offset + _HEADER.size].tobytes())
    if sentinel != _SENTINEL:
        raise ValueError(f"{file.name} holds no weights at {offset}")
    if start + size > len(mapped):
        raise ValueError(f"{file.name} is truncated: it ends within the weights at {offset}")
    data = np.asarray(mapped[start : start + size])
    count = math.prod(shape)
    packed = _PACKED.get(dtype)
    numpy_type = np.dtype(np.uint8 if packed else getattr(ml_dtypes, dtype, dtype))
    if size != (-(-count * packed // 8) if packed else count * numpy_type.itemsize):
        raise ValueError(f"{file.name} has {size} bytes at {offset}, which are not {shape} of {dtype}")
    return (unpack(data, dtype, count) if packed else data.view(numpy_type)).reshape(shape)


def unpack(data: Array, dtype: str, count: int) -> Array:
    """Unpack `count` numbers of fewer than 8 bits each; raises ValueError where there are fewer."""
    width = _PACKED[dtype]
    if data.size * 8 < count * width:
        raise ValueError(f"{data.size} bytes hold fewer than {count} of {dtype}")
    if 8 % width:
        bits = np.unpackbits(data, bitorder="little", count=count * width).reshape(count, width)
        numbers = (bits << np.arange(width, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    else:  # no number crosses a byte
        each = 8 // width
        numbers = np.empty(data.size * each, np.uint8)
        for place in range(each):
            numbers[place::each] = (data >> (place * width)) & ((1 << width) - 1)
        numbers = numbers[:count]
    if dtype != "int4":
        return np.asarray(numbers)
    return np.asarray((numbers.astype(np.int8) ^ 8) - 8)  # extend the sign bit of 4
