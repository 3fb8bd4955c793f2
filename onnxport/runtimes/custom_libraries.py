"""The user's libraries of ONNX Runtime custom operators, by name; imports nothing but the standard library."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from onnxport.core.missing_paths import missing_path

VARIABLE = "ONNXPORT_CUSTOM_OPS_LIBRARY"


def libraries() -> tuple[Path, ...]:
    """Return the libraries that the environment names; several are separated as in PATH."""
    return tuple(Path(text) for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text)


def use_libraries(paths: Iterable[Path]) -> None:
    """Use libraries in this process and in its children, beside those of the environment.

    Raises:
        InputError: one does not exist.
    """
    for path in paths:
        if not path.is_file():
            what = f"the library {path} does not exist"
            raise missing_path(path, what=what, fix="give the file of the custom operators")
    named = dict.fromkeys((*map(str, libraries()), *(os.path.abspath(path) for path in paths)))
    os.environ[VARIABLE] = os.pathsep.join(named)


def writable(*folders: Path) -> tuple[Path, ...] | None:
    """Return `folders`, for Child.writes, or None: a library of the user's has the user's rights."""
    return None if libraries() else folders
