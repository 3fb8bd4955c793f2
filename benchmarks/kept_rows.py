"""Rows of a benchmark that a file keeps from run to run, and which of them were measured before a change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Row(Protocol):
    """A dataclass with the key of a model and the digest of the rules with which it was measured."""

    @property
    def key(self) -> str: ...
    @property
    def rules(self) -> str: ...


AnyRow = TypeVar("AnyRow", bound=Row)


def digest(sources: Iterable[Path]) -> str:
    """Return a digest of source files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(sources))).hexdigest()[:8]


def read(file: Path, kind: type[AnyRow]) -> dict[str, AnyRow]:
    """Return the rows of a file by their keys."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = (kind(**json.loads(line)) for line in lines)
    return {row.key: row for row in rows}


def write(file: Path, rows: Iterable[Any]) -> None:
    """Write a line for each row, a dataclass."""
    file.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")


def due(
    keys: Sequence[str], known: Mapping[str, Row], again: Sequence[str], now: str, *, stale: bool
) -> list[str]:
    """Return the keys to measure: those without a row, those told again, and, on request, those of other rules."""
    missing = [key for key in keys if key not in known]
    return missing + [
        key for key in keys if key in known and (key in again or (stale and known[key].rules != now))
    ]
