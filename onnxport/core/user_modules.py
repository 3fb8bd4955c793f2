"""Imports of the user's own modules: a metric, a factory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_first: list[str] = []  # the last counts


@contextmanager
def importable_from(folder: Path) -> Iterator[None]:
    """Has the user's modules imported from `folder` instead of the current one: a pipeline's lie beside its file."""
    _first.append(str(folder.resolve()))
    try:
        yield
    finally:
        _first.pop()


@contextmanager
def current_directory_first(folder: Path | None = None) -> Iterator[None]:
    """As `python -m` imports, or from `folder`. Afterwards it comes last, so that no file there stands in for a library
    of ours."""
    here = str(folder.resolve()) if folder else _first[-1] if _first else os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def found_module(name: str, folder: Path | None = None) -> Path | None:
    """The file of a module, found without importing it: that is its process's.

    Args:
        folder: where to look first; where modules are imported from unless given.
    """
    parts = name.split(".")
    first = folder or (Path(_first[-1]) if _first else Path.cwd())
    for each in (first, *map(Path, sys.path)):
        place = each.joinpath(*parts)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file
    return None
