"""A YAML file as plain values with their lines, so that every error names file, line and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from onnxport.core.errors import BadPipelineError, OnnxportError, UsageError
from onnxport.pipelines.params import RefusedValue
from onnxport.reports.pipeline.option_keys import spell_as_keys
from onnxport.reports.pipeline_report import PlaceRecord

Part = str | int
Place = tuple[Part, ...]


class Line(NamedTuple):
    """A line of a file, from 1."""

    path: Path
    number: int

    @property
    def record(self) -> PlaceRecord:
        return PlaceRecord(file=str(self.path), line=self.number)


@dataclass(frozen=True)
class Document:
    """The content of a file and of its includes.

    Attributes:
        data: dicts with text keys, lists, text, numbers with their source text, True, False and None.
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
        """Return whether a place is in the file itself, not in an included one."""
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


class Faults:
    """Collects the faults of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: dict[str, tuple[tuple[int, int], OnnxportError]] = {}

    def add(self, fault: OnnxportError | str, *place: Part, why: str = "", fix: str = "") -> None:
        """Add a fault at `place`, a UsageError if it is given as text, unless it is known already."""
        error = UsageError(fault, why=why, fix=fix) if isinstance(fault, str) else fault
        error.what, error.why, error.fix = map(spell_as_keys, (error.what, error.why, error.fix))
        placed = self._document.with_place(error, place)
        self._found.setdefault(str(placed), (self._document.order(place), placed))

    @contextmanager
    def catching(self, *place: Part) -> Iterator[None]:
        """Add an error inside the block as a fault at `place`, and continue behind the block."""
        try:
            yield
        except OnnxportError as error:
            self.add(error, *place)

    def where(self, *place: Part) -> str:
        """Return FILE:LINE, KEY for messages."""
        return self._document.where(place)

    def is_in_main_file(self, *place: Part) -> bool:
        """Return whether a place is in the file itself, not in an included one."""
        return self._document.is_in_main_file(place)

    def __len__(self) -> int:
        return len(self._found)

    def check(self) -> None:
        """Raise the fault, or BadPipelineError for several, in the order of their lines."""
        found = [error for _, error in sorted(self._found.values(), key=lambda each: each[0])]
        raise_all(str(self._document.path), found)


def raise_all(name: str, found: Sequence[OnnxportError]) -> None:
    """Raise the faults of the file `name`, if there are any."""
    if len(found) == 1:
        raise found[0]
    if found:
        raise BadPipelineError(f"{name} has {len(found)} faults:", found)
