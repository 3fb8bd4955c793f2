"""The weight file of a package: blobs behind 64-byte headers, mapped from disk.

Layout (coremltools, mlmodel/src/MILBlob/Blob/StorageFormat.hpp): a header says 0xDEADBEEF, the element type, the size
in bytes and the offset of the data; numbers of fewer than 8 bits are packed, the first in the lowest bits.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_HEADER = struct.Struct("<IIQQQ")
_SENTINEL = 0xDEADBEEF
# Bits of the packed types, by their NumPy name.
_PACKED = {"uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6, "int4": 4}


def read_blob(file: Path, offset: int, dtype: str, shape: tuple[int, ...]) -> Array:
    """The array whose header is at `offset`; packed numbers come as uint8 or int8.

    Raises:
        ValueError: no header there, or fewer data than the shape wants.
    """
    mapped = np.memmap(file, np.uint8, "r")
    sentinel, _, size, start, _ = _HEADER.unpack(mapped[offset : offset + _HEADER.size].tobytes())
    if sentinel != _SENTINEL or start + size > len(mapped):
        raise ValueError(f"{file.name} holds no weights at {offset}")
    data = mapped[start : start + size]
    count = int(np.prod(shape, dtype=np.int64))
    if dtype in _PACKED:
        return unpacked(np.asarray(data), dtype, count).reshape(shape)
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.asarray(data[: count * numpy_type.itemsize]).view(numpy_type).reshape(shape)


def unpacked(data: Array, dtype: str, count: int) -> Array:
    """`count` numbers of fewer than 8 bits each."""
    width = _PACKED[dtype]
    bits = np.unpackbits(data, bitorder="little")[: count * width].reshape(count, width)
    numbers = (bits << np.arange(width, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    if dtype != "int4":
        return np.asarray(numbers)
    return np.asarray((numbers.astype(np.int8) ^ 8) - 8)  # the sign bit of 4
