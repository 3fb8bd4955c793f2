"""The external data of an ONNX model, found in its bytes: without a library, and at any size."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path

from onnxport.formats.onnx_bytes import spans_without_numbers

# TensorProto.external_data in protobuf (a StringStringEntryProto): the key "location", then the value, behind the
# number of its bytes, 7 bits in each, the last of them below 128.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x01-\x7f])")
_MOST_READ = 64 * 2**20  # bytes; no graph without weights is larger, and a larger file is large itself


def locations(data: bytes | mmap.mmap) -> frozenset[str]:
    """Return the names of a model's data files; also other texts that are called location."""
    spans = spans_without_numbers(data)
    found = ((match.end(), match[1]) for span in spans for match in _LOCATION.finditer(data, *span))
    counted = ((start, sum((byte & 0x7F) << 7 * i for i, byte in enumerate(count))) for start, count in found)
    names = (data[start : start + count] for start, count in counted)
    return frozenset(os.fsdecode(name) for name in names if b"\0" not in name)


def stored_bytes(source: Path | bytes, folder: Path | None = None) -> int:
    """Return the bytes of a model, a file or its content, and of its data files (in `folder`) that exist."""
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    if not size or size > _MOST_READ:
        return size
    if isinstance(source, bytes):
        names = locations(source)
    else:
        folder = source.parent
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names = locations(content)
    return size + sum(_size((folder or Path()) / name) for name in names)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except (OSError, ValueError):  # a name that no file can have
        return 0
