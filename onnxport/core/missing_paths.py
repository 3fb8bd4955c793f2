"""Errors for paths that do not exist, with the nearest name that does, or that cannot be read."""

from __future__ import annotations

import difflib
import os
from itertools import islice
from pathlib import Path

from onnxport.core.errors import InputError

_LISTED = 10_000  # entries of a folder
_NEAR = 0.65  # of 1 for equal names; one letter of three is another name


def missing_path(path: Path, *, fix: str = "", what: str = "") -> InputError:
    """Return the error for a missing path.

    Args:
        fix: the remedy where no name is near.
        what: the sentence that names the path, unless "PATH does not exist".
    """
    near = nearest_path(path)
    return InputError(what or f"{path} does not exist", fix=f"did you mean {str(near)!r}?" if near else fix)


def unreadable_path(path: Path, error: OSError, *, fix: str = "") -> InputError:
    """Return the error for a path that the system does not let us read, or that does not exist."""
    if isinstance(error, FileNotFoundError):
        return missing_path(path, fix=fix)
    return InputError(f"{path} cannot be read", why=error.strerror or str(error), fix=fix)


def nearest_path(path: Path) -> Path | None:
    """Return the existing path that is nearest to `path`: another name in its folder, or in a folder of a near name."""
    try:
        if path.parent.is_dir():
            return _nearest_in(path.parent, path.name)
        folder = nearest_path(path.parent) if path.parent != path else None
        if folder is None or not folder.is_dir():
            return None
        return folder / path.name if (folder / path.name).exists() else _nearest_in(folder, path.name)
    except (OSError, ValueError):  # no permission, or a name that no file can have
        return None


def _nearest_in(folder: Path, name: str) -> Path | None:
    """Return the entry of a folder with the nearest name; those of the same suffix come first.

    Stems decide what is near: equal suffixes make any two short names alike.
    """
    with os.scandir(folder) as scanned:
        names = sorted(each.name for each in islice(scanned, _LISTED) if not each.name.startswith("."))
    wanted = Path(name)
    near = [each for each in names if _alike(Path(each).stem, wanted.stem) >= _NEAR]
    best = max(
        near, key=lambda each: (Path(each).suffix == wanted.suffix, _alike(each, name), each), default=None
    )
    return None if best is None else folder / best


def _alike(ours: str, theirs: str) -> float:
    return difflib.SequenceMatcher(None, ours.lower(), theirs.lower()).ratio()
