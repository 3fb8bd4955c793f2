"""The files of a package: protobuf messages, and the weight file, mapped from disk.

The generated modules come from coremltools, without importing it: that takes seconds and a dozen libraries.
Weights are blobs behind 64-byte headers (coremltools, mlmodel/src/MILBlob/Blob/StorageFormat.hpp): 0xDEADBEEF, the
element type, the size in bytes and the offset of the data. Numbers of fewer than 8 bits are packed, the first lowest.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import math
import os
import struct
import sys
import types
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.regular_file import TooLargeError, read_regular

_ALIAS = "onnxport_coreml_proto"
_LARGEST_MESSAGE = (1 << 31) - 1  # bytes, protobuf's limit; a sparse file can claim any size


def messages(name: str) -> Any:
    """Import the generated module of one `.proto` file ("Model", "MIL"); ImportError without coremltools."""
    if _ALIAS not in sys.modules:
        found = importlib.util.find_spec("coremltools")
        if found is None or found.origin is None:
            raise ImportError("coremltools is not installed")
        package = types.ModuleType(_ALIAS)
        # The generated modules import each other as siblings, so they work in a package of any name.
        package.__path__ = [str(Path(found.origin).parent / "proto")]
        sys.modules[_ALIAS] = package
    return importlib.import_module(f"{_ALIAS}.{name}_pb2")


def find_file(root: Path, name: str) -> Path:
    """Return the regular file `name` below `root`; it may be a link, as in download caches.

    Raises:
        ValueError: the name leads out of the folder, or to something that is no file.
        FileNotFoundError: there is no such file.
    """
    steps = PurePosixPath(name)
    if not name or steps.is_absolute() or ".." in steps.parts or "\\" in name or "\0" in name:
        raise ValueError(f"it names {name[:100]!r}, which is not a file in it")
    file = root / steps
    if not file.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if not file.is_file():  # reading a device or a pipe may never end
        raise ValueError(f"{file.name} is not a regular file")
    return file


def read_message(file: Path) -> bytes:
    """Return the content of a file with a protobuf message; raises ValueError above protobuf's limit."""
    try:
        return read_regular(file, _LARGEST_MESSAGE)
    except TooLargeError as error:
        raise ValueError(f"{file.name} has {error.size} bytes, more than any model") from error


_HEADER = struct.Struct("<IIQQQ")
_SENTINEL = 0xDEADBEEF
# Packed types -> bits.
PACKED = {"uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6, "int4": 4}


def read_blob(file: Path, offset: int, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the array whose header is at `offset`, packed numbers as uint8 or int8; ValueError if it does not fit."""
    with file.open("rb") as stream:
        mapped = (
            np.memmap(stream, np.uint8, "r") if os.fstat(stream.fileno()).st_size else np.empty(0, np.uint8)
        )
    if len(mapped) < offset + _HEADER.size:
        raise ValueError(f"{file.name} is truncated: it ends before the weights at {offset}")
    sentinel, _, size, start, _ = _HEADER.unpack(mapped[offset : offset + _HEADER.size].tobytes())
    if sentinel != _SENTINEL:
        raise ValueError(f"{file.name} holds no weights at {offset}")
    if start + size > len(mapped):
        raise ValueError(f"{file.name} is truncated: it ends within the weights at {offset}")
    data = np.asarray(mapped[start : start + size])
    count = math.prod(shape)
    packed = PACKED.get(dtype)
    numpy_type = np.dtype(np.uint8 if packed else getattr(ml_dtypes, dtype, dtype))
    if size != (-(-count * packed // 8) if packed else count * numpy_type.itemsize):
        raise ValueError(f"{file.name} has {size} bytes at {offset}, which are not {shape} of {dtype}")
    return (unpack(data, dtype, count) if packed else data.view(numpy_type)).reshape(shape)


def unpack(data: Array, dtype: str, count: int) -> Array:
    """Unpack `count` numbers of fewer than 8 bits each; raises ValueError where there are fewer."""
    width = PACKED[dtype]
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
