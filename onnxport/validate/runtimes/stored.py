"""How much an ONNX model stores, told without reading it as a model: who runs it wants to know first."""

from __future__ import annotations

import re
from pathlib import Path

# In bytes: no graph without weights is larger, and a larger file is large.
_MOST_READ = 64 * 2**20
# What protobuf writes of TensorProto.external_data (a StringStringEntryProto): the key "location", and a value of
# fewer than 128 bytes behind their number.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")


def stored_bytes(source: Path | bytes, folder: Path | None = None) -> int:
    """A model and the files that it names as its external data, in bytes; what is not there counts nothing.

    Args:
        source: a file, or the bytes of one.
        folder: where the external data lies; the file's own unless given.
    """
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    if size > _MOST_READ:
        return size
    if isinstance(source, Path):
        folder = source.parent
    data = source.read_bytes() if isinstance(source, Path) else source
    names = {data[found.end() : found.end() + found[1][0]] for found in _LOCATION.finditer(data)}
    beside = [(folder or Path()) / name.decode(errors="replace") for name in names]
    return size + sum(file.stat().st_size for file in beside if file.is_file())
