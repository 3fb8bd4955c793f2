"""The figures that stages report: a line of what changed, and a table for every list of rows.

A figure is a value, or a pair of before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxport.reports.phrases import human_size, text
from onnxport.reports.run_report import ArtifactRecord

# A fact about a whole model, before and after; these of its figures stand in the artefact's line.
_CHANGED = "changed"
_IN_THE_LINE = ("nodes", "opset")
_SAME = "0"


@dataclass(frozen=True)
class Table:
    """Rows of text under `columns`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def change(artifact: ArtifactRecord) -> str:
    """Return "nodes 310 -> 187, opset 11 -> 26, 13.9 MB -> 13.8 MB"; empty where no stage changed a model."""
    found = artifact.facts.get(_CHANGED)
    if found is None:
        return ""
    counts = [f"{name} {_arrow(found[name])}" for name in _IN_THE_LINE if _is_pair(found.get(name))]
    sizes = human_size(artifact.report.reference.size), human_size(artifact.size)
    return ", ".join((*counts, " -> ".join(dict.fromkeys(sizes))))


def tables(artifact: ArtifactRecord) -> Iterator[Table]:
    """Yield a table for each fact that is a list of rows; pairs become differences, empty columns are left out."""
    for name, value in artifact.facts.items():
        if _is_rows(value):
            names = dict.fromkeys(column for row in value for column in row)
            columns = [
                column for column in names if any(_cell(row.get(column)) not in ("", _SAME) for row in value)
            ]
            rows = tuple(tuple(_cell(row.get(column)) for column in columns) for row in value)
            yield Table(text(name), tuple(map(text, columns)), rows)


def plain(artifact: ArtifactRecord) -> Iterator[tuple[str, str]]:
    """Yield the other facts, each with its text."""
    for name, value in artifact.facts.items():
        if isinstance(value, Mapping) and value and all(map(_is_pair, value.values())):
            yield text(name), ", ".join(f"{text(key)} {_arrow(pair)}" for key, pair in value.items())
        elif not _is_rows(value) and value != []:
            yield text(name), text(str(value))


def _is_rows(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
    )


def _arrow(pair: Sequence[float]) -> str:
    before, after = pair
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if _is_pair(value):
        return f"{value[1] - value[0]:+,}" if value[0] != value[1] else _SAME
    return text(str(value))
