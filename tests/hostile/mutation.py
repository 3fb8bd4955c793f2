"""Seeded changes to valid files: damage, and what an attacker would write, in the terms of the file's syntax."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import onnx

from onnxport.formats.manifest import KEY
from onnxport.pipelines.graph.digests import digest_of_value
from tests.hostile.structures import STRUCTURES, packed_zeros
from tests.hostile.wire import Field, encode, messages, parse, to_varint

# Names and doc strings that something downstream could take for more than text.
TEXTS = (
    "../../../secret.bin",
    "/etc/passwd",
    "..",
    "a\0b",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe",
    "\x9b31m",
    "\u2028\u2029\x85\x0b",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "::error file=x::forged\n::set-output name=a::b",
    "##[command]x",
    "&a [*a, *a]",
    "!!python/object/apply:os.system ['true']",
    "=cmd|' /C calc'!A0",
    "%s%n{0.__class__}{{7*7}}${HOME}",
    "x" * 70_000,
    "-1",
    "18446744073709551615",
    "1e999",
    "",
    "\ud7ff\ufffd\U0001f4a9",
)
NUMBERS = (0, 1, 2, 7, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
_CHANGES = (1, 1, 1, 2, 3)
_MOST_REPEATED = 3000
_DEEPEST = 2000


def mutate(data: bytes, syntax: str, chance: random.Random) -> bytes:
    """Return `data` with one to three changes; a quarter of them know nothing of the syntax."""
    for _ in range(chance.choice(_CHANGES)):
        known = (SYNTAXES[syntax], *STRUCTURES.get(syntax, ()))
        change = chance.choice(known) if chance.random() < 0.75 else _damage
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names twice in an archive
                data = change(data, chance)
        except Exception:  # a former change left nothing that has this structure
            data = _damage(data, chance)
    return data


def _damage(data: bytes, chance: random.Random) -> bytes:
    """Flip bits, cut, insert, repeat or blank bytes."""
    if not data:
        return bytes([chance.randrange(256)])
    start = chance.randrange(len(data))
    length = min(chance.choice((1, 2, 4, 8, 64, 1024)), len(data) - start)
    end = start + length
    kind = chance.randrange(7)
    if kind == 0:
        flipped = data[start] ^ (1 << chance.randrange(8))
        return data[:start] + bytes([flipped]) + data[start + 1 :]
    replaced = (
        chance.randbytes(length),
        bytes(length),
        b"\xff" * length,
        data[start:end] * 2,
        b"",
        chance.choice(TEXTS).encode()[:length],
    )[kind - 1]
    if kind == 5 and chance.random() < 0.5:  # the rest of the file is missing
        return data[:start]
    return data[:start] + replaced + data[end:]


# ---- protobuf


def _protobuf(data: bytes, chance: random.Random) -> bytes:
    try:
        root = parse(data)
    except (ValueError, IndexError):
        return _damage(data, chance)
    message = chance.choice([each for each in messages(root) if each] or [root])
    if not message:
        return _damage(data, chance)
    place = chance.randrange(len(message))
    field = message[place]
    kind = chance.randrange(8)
    if kind == 0:
        del message[place]
    elif kind == 1:
        message.insert(chance.randrange(len(message) + 1), deepcopy(field))
    elif kind == 2:
        chance.shuffle(message)
    elif kind == 3:
        field.number = chance.randint(1, 30)
    elif kind == 4 and isinstance(field.value, list):
        small = [Field(field.number, 2, b"")] if chance.random() < 0.5 else [deepcopy(field)]
        message[place:place] = small * chance.randint(2, _MOST_REPEATED)
    elif kind == 5 and isinstance(field.value, list):
        inner = encode(field.value)
        for _ in range(chance.randint(2, _DEEPEST)):
            inner = to_varint(field.number << 3 | 2) + to_varint(len(inner)) + inner
        field.value = inner
    else:
        _change_value(field, chance)
    return encode(root)


def _change_value(field: Field, chance: random.Random) -> None:
    if field.wire == 0:
        field.value = chance.choice((*NUMBERS, field.value + 1, field.value - 1))
    elif field.wire == 2:
        content = encode(field.value) if isinstance(field.value, list) else field.value
        text = chance.choice(TEXTS).encode()
        numbers = b"".join(to_varint(chance.choice(NUMBERS)) for _ in range(chance.randint(1, 5)))
        field.value = chance.choice((text, text, numbers, b"", content[: len(content) // 2], content * 2))
    else:
        size = len(field.value)
        field.value = chance.choice((bytes(size), b"\xff" * size, b"\0" * (size - 2) + b"\x80\x7f"))


# ---- binary formats of aligned numbers: FlatBuffers, RIFF, BMP, HDF5


def _words(data: bytes, chance: random.Random) -> bytes:
    if len(data) < 8:
        return _damage(data, chance)
    if chance.random() < 0.15 and (found := list(re.finditer(rb"[ -~]{4,}", data))):
        text = chance.choice(found)
        wanted = chance.choice(TEXTS).encode()
        length = text.end() - text.start()
        return data[: text.start()] + wanted[:length].ljust(length) + data[text.end() :]
    width = chance.choice((2, 4, 4, 4, 8))
    at = chance.randrange(0, max(len(data) - width, 1), 2 if width == 2 else 4)
    (before,) = struct.unpack_from({2: "<H", 4: "<I", 8: "<Q"}[width], data.ljust(at + width, b"\0"), at)
    other = chance.randrange(0, len(data), 4)
    value = chance.choice(
        (*NUMBERS, before + 1, before - 1, other - at, at - other, other, before * 2, len(data))
    )
    changed = (value % 2 ** (8 * width)).to_bytes(width, "little")
    return data[:at] + changed + data[at + width :]


def _png(data: bytes, chance: random.Random) -> bytes:
    """Change a chunk, mostly with its checksum."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks:
        return _damage(data, chance)
    place = chance.randrange(len(chunks))
    kind, content = chunks[place]
    change = chance.randrange(5)
    if change == 0:
        chunks.insert(place, chunks[place])
    elif change == 1:
        del chunks[place]
    elif change == 2:
        chance.shuffle(chunks)
    elif kind == b"IHDR" or change == 3:
        size = (chance.choice(NUMBERS) % 2**32).to_bytes(4, "big")
        offset = chance.choice((0, 4))
        chunks[place] = kind, content[:offset] + size + content[offset + 4 :]
    else:
        text = b"zTXt", b"a\0\0" + packed_zeros(20_000_000)
        chunks.insert(1, chance.choice(((kind, _damage(content, chance)), text)))
    out = bytearray(data[:8])
    for kind, content in chunks:
        out += struct.pack(">I", len(content)) + kind + content
        out += struct.pack(">I", zlib.crc32(kind + content) if chance.random() < 0.9 else 0)
    return bytes(out)


def _ubjson(data: bytes, chance: random.Random) -> bytes:
    """Change a length, the type of an array's values, or a name; numbers are big-endian."""
    kind = chance.randrange(4)
    pattern = (rb"L\0{6}..", rb"\[\$.", rb"[ -~]{4,}", rb"[][{}]")[kind]
    found = chance.choice(list(re.finditer(pattern, data, re.DOTALL)))
    if kind == 0:
        before = int.from_bytes(found[0][1:], "big")
        value = chance.choice((*NUMBERS, before + 1, before - 1, before * 2))
        new = b"L" + (value % 2**64).to_bytes(8, "big")
    elif kind == 1:
        new = found[0][:2] + chance.choice((b"d", b"D", b"U", b"i", b"I", b"l", b"L", b"S", b"[", b"Z", b"T"))
    elif kind == 2:
        new = chance.choice(TEXTS).encode()[: len(found[0])].ljust(len(found[0]))
    else:
        new = chance.choice((b"[", b"]", b"{", b"}", b"", found[0] * 2000))
    return data[: found.start()] + new + data[found.end() :]


# ---- archives


def _zip(data: bytes, chance: random.Random) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:
        return _damage(data, chance)
    if not members:
        return _damage(data, chance)
    place = chance.randrange(len(members))
    name, content = members[place]
    kind = chance.randrange(7)
    if kind == 0:
        del members[place]
    elif kind == 1:
        members.append(members[place])
    elif kind == 2:
        members[place] = chance.choice(TEXTS)[:1000].replace("\0", "") or "x", content
    elif kind == 3:
        members[place] = name, bytes(chance.choice((0, 1, 50_000_000)))
    else:
        inner = {"json": "json", "pb": "protobuf", "npy": "npy"}.get(name.rpartition(".")[2], "bytes")
        members[place] = name, mutate(content, inner, chance)
    out = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


_HEADERS = (
    *(b"'|O'", b"'<f8'", b"'<U99999999'", b"'|V0'", b"[('a', '<f4')]", b"'\\x00'", b"True", b"(" * 500),
    *(b"(-1,)", b"(99999999999,)", b"(1, 1, 8.0, 8)", b"(2**62, 4)", b"((1, 1), 8, 8)", b"__import__('os')"),
)


def _npy(data: bytes, chance: random.Random) -> bytes:
    """Change the header, which is a Python literal."""
    head, brace, rest = data.partition(b"}")
    if not brace or chance.random() < 0.3:
        return _damage(data, chance)
    old = chance.choice((rb"'[<|>]\w+'", rb"\(.*\)", rb"False", rb"'shape'", rb"\{.*"))
    new = chance.choice(_HEADERS)
    return re.sub(old, lambda _: new, head, count=1) + brace + rest


# ---- text


def _json(data: bytes, chance: random.Random) -> bytes:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return _damage(data, chance)
    places = list(_json_places(content))
    if not places:
        return _damage(data, chance)
    holder, key = chance.choice(places)
    values: tuple[Any, ...] = (
        *TEXTS,
        *NUMBERS,
        -1,
        -(2**63),
        0.5,
        1e308,
        None,
        True,
        [],
        {},
        [None],
        {"a": 1},
    )
    kind = chance.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[chance.choice(TEXTS)] = holder.pop(key)
    elif kind == 2 and isinstance(holder[key], list):
        holder[key] = holder[key] * chance.randint(2, 2000)
    elif kind == 3:
        depth = chance.randint(2, 5000)
        mark = "\0deep\0"
        holder[key] = mark
        return json.dumps(content).replace(json.dumps(mark), "[" * depth + "]" * depth).encode()
    else:
        holder[key] = chance.choice(values)
    text = json.dumps(content)
    if chance.random() < 0.05:
        text = re.sub(
            r"\d+", lambda _: chance.choice(("NaN", "-Infinity", "9" * 5000, "1e400")), text, count=1
        )
    return text.encode()


def _entry(data: bytes, chance: random.Random) -> bytes:
    """Change an entry of the cache and sign it again, as somebody with our source can."""
    try:
        said = json.loads(_json(data, chance))
        said.pop("digest", None)
        return json.dumps({**said, "digest": digest_of_value(said)}).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return _damage(data, chance)


def _json_places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield value, key
        yield from _json_places(each)


def _lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.decode(errors="surrogateescape").split("\n")
    place = chance.randrange(len(lines))
    line = lines[place]
    words = re.findall(r"[^\s:,=]+", line)
    text = chance.choice(
        (*TEXTS, *map(str, NUMBERS), "NaN", "- - - -", "{" * 200, "[" * 200, "*a", "&a", "<<: *a", '"')
    )
    kind = chance.randrange(8)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines[place:place] = [line] * chance.choice((1, 2, 1000))
    elif kind == 2:
        lines[place] = " " * chance.choice((1, 2, 40)) + line
    elif kind == 3:
        lines[place] = line.strip()
    elif kind == 4:
        chance.shuffle(lines)
    elif kind == 5 and words:
        lines[place] = line.replace(chance.choice(words), text, 1)
    elif kind == 6:
        lines[place] = line + text
    else:
        lines.insert(place, text)
    return "\n".join(lines).encode(errors="surrogateescape")


# ---- what we write into formats of others


def _note(data: bytes, chance: random.Random) -> bytes:
    """Change the manifest in an `.onnx` file."""
    model = onnx.load_from_string(data)
    (entry,) = (each for each in model.metadata_props if each.key == KEY)
    entry.value = _json(entry.value.encode(), chance).decode(errors="replace")
    return model.SerializeToString()


def _labels(data: bytes, chance: random.Random) -> bytes:
    """Change the archive of label files at the end of a `.tflite` file."""
    start = data.index(b"PK\3\4")
    change = chance.choice((_zip, *STRUCTURES["zip"]))
    return data[:start] + change(data[start:], chance)


SYNTAXES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes": _damage,
    "protobuf": _protobuf,
    "words": _words,
    "png": _png,
    "zip": _zip,
    "npy": _npy,
    "json": _json,
    "ubjson": _ubjson,
    "entry": _entry,
    "lines": _lines,
    "yaml": _lines,
    "tflite": _words,
    "note": _note,
    "labels": _labels,
}
