"""Changes that keep a syntax and break the meaning: parts in other places, names of others, headers that differ."""

from __future__ import annotations

import functools
import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import yaml

from tests.hostile.wire import Field, encode, messages, parse, to_varint

_METHODS = (0, 1, 8, 9, 12, 14, 93, 99)
_SIZES = (0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)


# ---- protobuf


def graft(data: bytes, chance: random.Random) -> bytes:
    """Move parts of a message elsewhere, exchange names, or write the same fields in another form."""
    root = parse(data)
    kind = chance.choice((_exchange, _exchange, _rename, _rename, _transplant, _merge, _rewrite))
    return kind(data, root, chance)


def _values(root: list[Field], chance: random.Random, fits: Callable[[Field], bool]) -> list[Field]:
    found = [field for message in messages(root) for field in message if fits(field)]
    return chance.sample(found, 2) if len(found) > 1 else []


def _exchange(data: bytes, root: list[Field], chance: random.Random) -> bytes:
    """Exchange the contents of two fields of one number and form: shapes, bodies, types, data."""
    chosen = chance.choice([field for message in messages(root) for field in message])
    pair = _values(root, chance, lambda each: (each.number, each.wire) == (chosen.number, chosen.wire))
    if pair:
        one, other = pair
        one.value, other.value = deepcopy(other.value), deepcopy(one.value)
    return encode(root)


def _rename(data: bytes, root: list[Field], chance: random.Random) -> bytes:
    """Give one name the value of another: values defined twice, cycles, unknown operators, attributes twice."""
    pair = _values(root, chance, lambda each: isinstance(each.value, bytes) and 0 < len(each.value) < 60)
    if pair:
        pair[0].value = pair[1].value
    return encode(root)


def _transplant(data: bytes, root: list[Field], chance: random.Random) -> bytes:
    """Put a copy of any field into any message."""
    places = [message for message in messages(root) if message]
    field = deepcopy(chance.choice(chance.choice(places)))
    place = chance.choice(places)
    place.insert(chance.randint(0, len(place)), field)
    return encode(root)


def _merge(data: bytes, root: list[Field], chance: random.Random) -> bytes:
    """Append a part of the message to itself: protobuf merges what comes twice."""
    again = chance.sample(root, chance.randint(1, len(root)))
    return data + encode(deepcopy(again))


def _rewrite(data: bytes, root: list[Field], chance: random.Random) -> bytes:
    """Write varints longer than needed, groups, packed numbers alone, or unknown fields around."""
    message = chance.choice([each for each in messages(root) if each])
    at = chance.randrange(len(message))
    field = message[at]
    kind = chance.randrange(4)
    if kind == 0:
        unknown = Field(chance.randint(400, 599), 2, chance.randbytes(chance.choice((0, 5, 100_000))))
        message.insert(at, unknown)
    elif kind == 1:  # the number with its wire type, and nothing after it
        return encode(root) + to_varint(field.number << 3 | chance.choice((3, 4, 6, 7)))
    elif kind == 2 and field.wire == 2 and isinstance(field.value, bytes):
        message[at : at + 1] = [Field(field.number, 0, byte) for byte in field.value[:50]] or [field]
    elif field.wire == 0:
        message[at] = Field(field.number, 2, to_varint(field.value) * chance.choice((1, 2, 1000)))
    return encode(root)


# ---- TFLite


def objects(data: bytes, chance: random.Random) -> bytes:
    """Change a TFLite model in the terms of its schema: indices, shapes, types and options of operators."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    places = [(each, name) for each in _objects(model) for name in vars(each)]
    for _ in range(chance.choice((1, 1, 3))):
        holder, name = chance.choice(places)
        other, other_name = chance.choice([place for place in places if place[1] == name])
        value = getattr(holder, name)
        small = (-2, -1, 0, 1, 2, 3, 7, 64, 127)
        if isinstance(value, bool) or value is None or chance.random() < 0.3:
            setattr(holder, name, deepcopy(getattr(other, other_name)))
        elif isinstance(value, int):
            setattr(holder, name, chance.choice(small))
        elif isinstance(value, list) or hasattr(value, "tolist"):
            numbers = [chance.choice((*small, 2**31 - 1)) for _ in range(chance.choice((0, 1, 4, 9)))]
            setattr(holder, name, numbers if all(isinstance(each, int) for each in value) else value[:0])
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _objects(value: Any) -> list[Any]:
    inner = (
        list(vars(value).values()) if hasattr(value, "__dict__") else value if isinstance(value, list) else []
    )
    own = [value] if hasattr(value, "__dict__") else []
    return [*own, *(found for each in inner for found in _objects(each))]


# ---- archives


def headers(data: bytes, chance: random.Random) -> bytes:
    """Change a zip archive's headers: sizes, methods, flags and names that its two directories tell differently."""
    places = [match.start() for match in re.finditer(rb"PK\x01\x02|PK\x03\x04|PK\x05\x06", data)]
    if not places:
        return data
    at = chance.choice(places)
    kind = data[at + 2]
    # Offset and width of: flags, method, CRC, packed and unpacked size, length of name and of extra, place.
    fields: Mapping[int, tuple[tuple[int, int], ...]] = {
        3: ((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
        1: ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (38, 4), (42, 4)),
        5: ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
    }
    offset, width = chance.choice(fields[kind])
    before = int.from_bytes(data[at + offset : at + offset + width], "little")
    value = chance.choice((*_SIZES, before + 1, before - 1, before * 2, before ^ 1, *_METHODS, len(data)))
    changed = (value % 2 ** (8 * width)).to_bytes(width, "little")
    return data[: at + offset] + changed + data[at + offset + width :]


def repack(data: bytes, chance: random.Random) -> bytes:
    """Write an archive anew: other methods, names twice, folders and links for members, bytes before and after."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    out = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    kind = chance.randrange(6)
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            if kind == 0:
                info.filename = name + "/"
            elif kind == 1:  # a symbolic link
                info.external_attr, content = 0o120777 << 16, b"/etc/passwd"
            elif kind == 2:
                info.filename = chance.choice((name.upper(), "./" + name, "a/" + name, name * 300))
            elif kind == 3:
                info.comment, archive.comment = b"c" * 60_000, b"PK\x05\x06" * 5000
            archive.writestr(info, content)
    around = chance.randbytes(chance.choice((0, 3, 4000)))
    return {4: around + out.getvalue(), 5: out.getvalue() + around}.get(kind, out.getvalue())


# ---- arrays


_DTYPES = (
    "'>f4'", "'<f2'", "'<c16'", "'|b1'", "'<M8[ns]'", "'<m8'", "'|S5'", "'<U7'", "'<i8'", "'|O'", "'|V16'", "'<f16'",
    "[('a', '<f4', (2, 3)), ('b', [('c', '<i4')])]", "{'names': ['a'], 'formats': ['O']}", "('<f4', (2,))",
)  # fmt: skip


def array(data: bytes, chance: random.Random) -> bytes:
    """Write an array's header anew, of any version of the format, its bytes as they are."""
    if data[:6] != b"\x93NUMPY":
        return data
    content = data[10 + int.from_bytes(data[8:10], "little") :]
    shape = chance.choice(("()", "(0,)", "(1, 1, 8, 8)", "(0, 2**62)", "(64,)", "(8, 8, 1, 1)", "(1,) * 40"))
    text = f"{{'descr': {chance.choice(_DTYPES)}, 'fortran_order': {chance.choice((True, False))}, 'shape': {shape}}}"
    if chance.random() < 0.2:
        text = " " * chance.choice((1, 65_000, 2_000_000)) + text
    version = chance.choice((1, 2, 3, 4, 0, 255))
    head = text.encode() + b"\n"
    size = struct.pack("<H", len(head) % 2**16) if version < 2 else struct.pack("<I", len(head))
    return b"\x93NUMPY" + bytes([version, chance.choice((0, 1))]) + size + head + content


# ---- pictures


@functools.cache
def packed_zeros(size: int) -> bytes:
    return zlib.compress(bytes(size))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def chunks(data: bytes, chance: random.Random) -> bytes:
    """Put chunks into a PNG file: animation, palettes, profiles, other depths, packed texts."""
    if len(data) < 33:
        return data
    packed = packed_zeros(chance.choice((10, 20_000_000)))
    numbers = [chance.choice((0, 1, 8, 2**31 - 1, 2**32 - 1)) for _ in range(8)]
    frame = struct.pack(">5I", *numbers[:5]) + b"\0\1\0\1\0\0"
    added = chance.choice(
        (
            _chunk(b"acTL", struct.pack(">II", *numbers[:2])) + _chunk(b"fcTL", frame),
            _chunk(b"fdAT", struct.pack(">I", numbers[0]) + packed[:500]),
            _chunk(b"PLTE", chance.randbytes(chance.choice((0, 3, 4, 768, 3000)))),
            _chunk(b"tRNS", chance.randbytes(chance.choice((0, 1, 2, 256, 3000)))),
            _chunk(b"iCCP", b"p\0\0" + packed),
            _chunk(b"eXIf", b"MM\0*" + struct.pack(">I", numbers[0]) + chance.randbytes(40)),
            _chunk(b"iTXt", b"a\0\1\0\0\0" + packed),
            _chunk(b"IDAT", packed),
            _chunk(b"gAMA", struct.pack(">I", numbers[0])),
            _chunk(b"IEND", b""),
        )
    )  # fmt: skip
    if chance.random() < 0.3:  # depth, colour, compression, filter, interlace
        at = chance.randrange(24, 29)
        head = data[12:at] + bytes([chance.choice((0, 1, 2, 3, 4, 6, 16, 255))]) + data[at + 1 : 29]
        data = data[:8] + _chunk(head[:4], head[4:]) + data[33:]
    place = 33 if chance.random() < 0.8 else len(data) - 12
    return data[:place] + added * chance.choice((1, 1, 1, 500)) + data[place:]


# ---- pipelines


def tree(data: bytes, chance: random.Random) -> bytes:
    """Change a YAML document as a tree: values in other places, of other kinds, in other writing."""
    content = yaml.safe_load(data)
    if not isinstance(content, dict) or not content:
        return data
    holders = _holders(content)
    values = [(holder, key) for holder in holders for key in _keys(holder)]
    holder, key = chance.choice(values)
    other_holder, other_key = chance.choice(values)
    kind = chance.randrange(8)
    if kind == 0:
        holder[key] = deepcopy(other_holder[other_key])
    elif kind == 1:
        holder[key] = chance.choice(_SCALARS)
    elif kind == 2:
        holder[key] = [holder[key]] * chance.choice((1, 2, 50))
    elif kind == 3 and isinstance(holder, dict):
        holder[chance.choice((*_SCALARS[:6], other_key if isinstance(other_key, str) else "a"))] = holder.pop(
            key
        )
    elif kind == 4:
        holder[key] = {"a": holder[key]}
    elif kind == 5 and isinstance(holder, dict):
        holder[chance.choice(_KEYS)] = chance.choice((*_SCALARS, deepcopy(other_holder[other_key])))
    text = yaml.safe_dump(content, default_flow_style=chance.choice((True, False)), sort_keys=False)
    return chance.choice(_WRITINGS)(text)


_SCALARS: tuple[Any, ...] = (
    None, True, 0, -1, 1e300, float("nan"), float("inf"), 2**70, "", ".", "~", "/", "a: b", "1,1,8,8", "x" * 5000,
    [], {}, "${HOME}", "digits.onnx", "pipeline.yaml", "../x", "\x07", "1 GB", "-1MB", "1e400s", "{to: ort}",
)  # fmt: skip
_KEYS = (
    "include", "defaults", "preprocess", "samples", "factory", "model", "models", "max_size", "max_latency", "max_load",
    "budget", "output", "from", "to", "use", "matrix", "shape", "validate", "reports", "cache", "executor", "plugins",
)  # fmt: skip
_WRITINGS: tuple[Callable[[str], bytes], ...] = (
    *(str.encode,) * 6,
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("utf-8-sig"),
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: text.replace("\n", "\r").encode(),
    lambda text: ("---\n" + text + "---\n" + text).encode(),
    lambda text: ("%YAML 9.9\n---\n" + text).encode(),
    lambda text: text.replace("  ", "\t").encode(),
    lambda text: (text + "...\n\0").encode(),
)


def _holders(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(holder for each in inner for holder in _holders(each))]


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


# Syntax of mutation.py -> further changes.
STRUCTURES: Mapping[str, tuple[Callable[[bytes, random.Random], bytes], ...]] = {
    "protobuf": (graft, graft),
    "tflite": (objects, objects),
    "zip": (headers, repack),
    "npy": (array,),
    "png": (chunks,),
    "yaml": (tree, tree),
}
