"""Import modules of the user: a metric, a factory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_folders: list[str] = []  # of nested `importable_from`; the last one counts


@contextmanager
def import_from(folder: Path) -> Iterator[None]:
    """Import user modules from `folder` instead of the current one: a pipeline's modules lie beside its file."""
    _folders.append(str(folder.resolve()))
    try:
        yield
    finally:
        _folders.pop()


@contextmanager
def current_directory_first(folder: Path | None = None) -> Iterator[None]:
    """Put the current folder, or `folder`, first in sys.path, as `python -m` does; afterwards last."""
    here = str(folder.resolve()) if folder else _folders[-1] if _folders else os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def find_module(name: str, folder: Path | None = None) -> Path | None:
    """Return the file of a module without importing it, or None; searches `folder` or that of `import_from` first."""
    parts = name.split(".")
    first = folder or (Path(_folders[-1]) if _folders else Path.cwd())
    for each in (first, *map(Path, sys.path)):
        place = each.joinpath(*parts)
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file
    return None
