"""Which files an ONNX model keeps weights in, told from its bytes: without a library, and whatever its size."""

from __future__ import annotations

import mmap
import os
import re

# What protobuf writes of TensorProto.external_data (a StringStringEntryProto): the key "location", and a value behind
# the number of its bytes, 7 bits in each, the last of them below 128.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x01-\x7f])")


def locations(data: bytes | mmap.mmap) -> frozenset[str]:
    """The names in a model: none too few, maybe one that is no file, since other texts may be called location too."""
    found = ((match.end(), match[1]) for match in _LOCATION.finditer(data))
    names = (data[start : start + _number(count)] for start, count in found)
    return frozenset(os.fsdecode(name) for name in names if b"\0" not in name)


def _number(bits: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(bits))
