"""A YAML file as plain values with their lines, so that every error names file, line and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from onnxport.core.errors import OnnxportError
from onnxport.pipelines.params import RefusedValue

Part = str | int
Place = tuple[Part, ...]


class Line(NamedTuple):
    """A line of a file, from 1."""

    path: Path
    number: int


@dataclass(frozen=True)
class Document:
    """The content of a file and of its includes.

    Attributes:
        path: the file, as the user gave it.
        data: its values: dicts with text keys, lists, text, numbers with their source text, True, False and None.
        lines: of every key and item, by its place in `data`.
    """

    path: Path
    data: dict[str, Any]
    lines: Mapping[Place, Line] = field(default_factory=dict)

    def line(self, place: Sequence[Part]) -> Line | None:
        """Return the line of the nearest place that is in the file."""
        for length in range(len(place), 0, -1):
            if found := self.lines.get(tuple(place[:length])):
                return found
        return None

    def where(self, place: Sequence[Part]) -> str:
        """Return FILE:LINE, KEY for messages."""
        found = self.line(place)
        file = f"{found.path}:{found.number}" if found else str(self.path)
        return f"{file}, {spell(place)}" if place else file

    def order(self, place: Sequence[Part]) -> tuple[int, int]:
        """Return a sort key: by line, with included files last."""
        found = self.line(place)
        return (0, 0) if found is None else (int(found.path != self.path), found.number)

    def is_in_main_file(self, place: Sequence[Part]) -> bool:
        """Whether a place is in the file itself, not in an included one."""
        found = self.line(place)
        return found is None or found.path == self.path

    def with_place(self, error: OnnxportError, place: Sequence[Part]) -> OnnxportError:
        """Put the place in the file in front of `error`."""
        if isinstance(error, RefusedValue):
            error.what = f"{show(error.value)} is not valid"
        error.what = f"{self.where(place)}: {error.what}"
        return error


def spell(place: Sequence[Part]) -> str:
    """Return a place as text: targets.phone.precision, reports[0]."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


_LONGEST = 60


def show(value: object) -> str:
    """Return a value as its author would recognize it."""
    if isinstance(value, Mapping):
        return "a mapping of keys" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
