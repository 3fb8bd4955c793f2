"""A YAML file as plain values that remember where they stand, so that every complaint names file, line and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from onnxport.errors import InputError, OnnxportError, UsageError
from onnxport.pipelines.stages import RefusedValue

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """What a file says.

    Attributes:
        path: the file, as the user gave it.
        data: its values.
        lines: the line, from 1, of every key and item, by its place in `data`.
    """

    path: Path
    data: Any
    lines: Mapping[Place, int] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Document:
        """Reads `path`.

        Raises:
            InputError: missing or unreadable.
            UsageError: no YAML, a key that stands twice, or values of other kinds than YAML's core.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{path} does not exist", fix="write one with: onnxport init") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read", why=str(error)) from error
        lines: dict[Place, int] = {}
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            data = None if root is None else _value(path, root, (), lines)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{path}:{mark.line + 1}" if mark else str(path)
            raise UsageError(f"{where} is no YAML", why=" ".join((error.problem or "").split())) from error
        return cls(path, data, lines)

    def where(self, place: Sequence[str | int]) -> str:
        """FILE:LINE, KEY of the nearest place that stands in the file, for messages."""
        for length in range(len(place), -1, -1):
            near = tuple(place[:length])
            if near in self.lines:
                return f"{self.path}:{self.lines[near]}, {spelled(place)}"
        return f"{self.path}, {spelled(place)}" if place else str(self.path)

    @contextmanager
    def blamed(self, *place: str | int) -> Iterator[None]:
        """Has an error inside begin with the place of the file that led to it."""
        try:
            yield
        except OnnxportError as error:
            named = (error.name,) if isinstance(error, RefusedValue) else ()
            error.what = f"{self.where((*place, *named))}: {error.what}"
            raise


def spelled(place: Sequence[str | int]) -> str:
    """A place as a reader follows it: targets.phone.precision, reports[0]."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _value(path: Path, node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = str(key_node.value)
            if key in values:
                raise UsageError(f"{path}:{line}: {spelled((*place, key))} stands twice", fix="keep one")
            lines[(*place, key)] = line
            values[key] = _value(path, value_node, (*place, key), lines)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_value(path, item, (*place, number), lines) for number, item in enumerate(node.value)]
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()
