"""Rows of a benchmark that a file keeps from run to run, and which of them were measured before a change.

A row holds as long as a conversion gives the files that it was measured on, byte by byte: a change of the code makes
rows stale, and a conversion that gives the same files again confirms them without a measurement.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

_SOURCES = Path(__file__).parents[1] / "onnxport"


class Row(Protocol):
    """A dataclass with the key of a model.

    Attributes:
        files: digest of the files that were measured.
        rules: digest of the code that last made these files.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> str: ...
    @property
    def files(self) -> str: ...
    @property
    def rules(self) -> str: ...


AnyRow = TypeVar("AnyRow", bound=Row)


def digest(sources: Iterable[Path]) -> str:
    """Return a digest of source files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(sources))).hexdigest()[:8]


def rules() -> str:
    """Return a digest of the code that may change what a conversion gives."""
    rooms = (_SOURCES / room for room in ("converters", "optimizers"))
    return digest(file for room in rooms for file in room.rglob("*.py"))


def read(file: Path, kind: type[AnyRow]) -> dict[str, AnyRow]:
    """Return the rows of a file by their keys."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = (kind(**json.loads(line)) for line in lines)
    return {row.key: row for row in rows}


def write(file: Path, rows: Iterable[Any]) -> None:
    """Write a line for each row, a dataclass."""
    file.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")


def of_one_kind(rows: Sequence[Row]) -> str:
    """Return how many rows hold for the same code: a page whose rows differ in that is no single run."""
    found = Counter(row.rules for row in rows if row.files).most_common(1)  # others: of a version unknown
    count = found[0][1] if found else 0
    return f"{count} of {len(rows)}"


def due(
    keys: Sequence[str], known: Mapping[str, Row], again: Sequence[str], now: str, *, stale: bool
) -> list[str]:
    """Return the keys to measure: those without a row, those told again, and, on request, those of other rules."""
    missing = [key for key in keys if key not in known]
    return missing + [
        key for key in keys if key in known and (key in again or (stale and known[key].rules != now))
    ]


def parse(program: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options that say what is measured: `again`, `stale`, `minutes`."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}")
    parser.add_argument("--again", nargs="+", default=[], metavar="KEY", help="models to measure again")
    parser.add_argument("--stale", action="store_true", help="also what was measured with other rules")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing after that")
    return parser.parse_args(arguments)


def fill(
    document: Path,
    known: dict[str, AnyRow],
    keys: Sequence[str],
    given: argparse.Namespace,
    now: str,
    measure: Callable[[str], AnyRow],
    convert: Callable[[str], str],
    page: Callable[[Sequence[AnyRow]], str],
) -> None:
    """Measure or confirm what is due, and write the page and the rows beside it after each.

    Args:
        known: the rows so far; new ones come to it.
        given: see `parse`.
        now: the digest of the rules as they are.
        convert: returns the digest of the files that a conversion gives now.
    """
    todo = due(keys, known, given.again, now, stale=given.stale)
    end = time.monotonic() + 60 * given.minutes
    while todo and time.monotonic() < end:
        key = todo.pop(0)
        row = known.get(key)
        if row is None or key in given.again or not row.files or row.files != convert(key):
            row = measure(key)
        row = known[key] = replace(row, rules=now)
        print(row, flush=True)
        kept = [known[key] for key in keys if key in known]
        write(document.with_suffix(".jsonl"), kept)
        document.write_text(page(kept), encoding="utf-8")
    print(f"{len(todo)} left")
