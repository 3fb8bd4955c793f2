"""A YAML file as plain values that remember where they stand, so that every complaint names file, line and key."""

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
    """What a file says, with those that it includes.

    Attributes:
        path: the file, as the user gave it.
        data: its values: dicts with keys that are text, lists, text, numbers that remember how they were written,
            True, False and None.
        lines: of every key and item, by its place in `data`.
    """

    path: Path
    data: dict[str, Any]
    lines: Mapping[Place, Line] = field(default_factory=dict)

    def line(self, place: Sequence[Part]) -> Line | None:
        """That of the nearest place that stands in the file."""
        for length in range(len(place), 0, -1):
            if found := self.lines.get(tuple(place[:length])):
                return found
        return None

    def where(self, place: Sequence[Part]) -> str:
        """FILE:LINE, KEY for messages."""
        found = self.line(place)
        file = f"{found.path}:{found.number}" if found else str(self.path)
        return f"{file}, {spell(place)}" if place else file

    def order(self, place: Sequence[Part]) -> tuple[int, int]:
        """What sorts places as a reader meets them: by line, those of included files behind the others."""
        found = self.line(place)
        return (0, 0) if found is None else (int(found.path != self.path), found.number)

    def is_in_main_file(self, place: Sequence[Part]) -> bool:
        """Whether a place stands in the file itself, not in one that it includes."""
        found = self.line(place)
        return found is None or found.path == self.path

    def with_place(self, error: OnnxportError, place: Sequence[Part]) -> OnnxportError:
        """`error`, beginning with the place of the file that led to it."""
        if isinstance(error, RefusedValue):
            error.what = f"{show(error.value)} cannot be meant"
        error.what = f"{self.where(place)}: {error.what}"
        return error


def spell(place: Sequence[Part]) -> str:
    """A place as a reader follows it: targets.phone.precision, reports[0]."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


_LONGEST = 60


def show(value: object) -> str:
    """A value as its author would recognize it."""
    if isinstance(value, Mapping):
        return "a mapping of keys" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
