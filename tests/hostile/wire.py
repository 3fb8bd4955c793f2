"""Protobuf messages by their wire format alone, for changes that need no schema."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Field:
    """A field of a message."""

    number: int
    wire: int
    value: Any  # int, bytes, or a list of Field


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("no varint")


def to_varint(value: int) -> bytes:
    """Return the bytes of a number of 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def parse(data: bytes, depth: int = 0) -> list[Field]:
    """Parse a message; raises ValueError or IndexError where it is none."""
    fields, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not 0 < number < 600 or wire not in (0, 1, 2, 5):
            raise ValueError("no field")
        value: Any
        if wire == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            if at + size > len(data):
                raise ValueError("too long")
            value, at = data[at : at + size], at + size
            if wire == 2 and value and depth < 20 and not _is_text(value):
                with contextlib.suppress(ValueError, IndexError):
                    value = parse(value, depth + 1)
        fields.append(Field(number, wire, value))
    return fields


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def encode(fields: list[Field]) -> bytes:
    """Return the bytes of a message."""
    out = bytearray()
    for field in fields:
        out += to_varint(field.number << 3 | field.wire)
        if field.wire == 0:
            out += to_varint(field.value)
            continue
        content = encode(field.value) if isinstance(field.value, list) else field.value
        if field.wire == 2:
            out += to_varint(len(content))
        out += content
    return bytes(out)


def messages(fields: list[Field]) -> Iterator[list[Field]]:
    """Yield a message and those in it."""
    yield fields
    for field in fields:
        if isinstance(field.value, list):
            yield from messages(field.value)
