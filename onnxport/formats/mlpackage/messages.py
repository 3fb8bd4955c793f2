"""The protobuf messages of a package: their generated modules, and the files that hold them.

The modules come from coremltools, but without importing it: that takes seconds and a dozen libraries.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path, PurePosixPath
from typing import Any

_ALIAS = "onnxport_coreml_proto"
_LARGEST_MESSAGE = (1 << 31) - 1  # bytes, protobuf's limit; a sparse file can claim any size


def messages(name: str) -> Any:
    """Import the generated module of one `.proto` file ("Model", "MIL").

    Raises:
        ImportError: coremltools is not installed.
    """
    if _ALIAS not in sys.modules:
        found = importlib.util.find_spec("coremltools")
        if found is None or found.origin is None:
            raise ImportError("coremltools is not installed")
        package = types.ModuleType(_ALIAS)
        # The generated modules import each other as siblings, so they work in a package of any name.
        package.__path__ = [str(Path(found.origin).parent / "proto")]
        sys.modules[_ALIAS] = package
    return importlib.import_module(f"{_ALIAS}.{name}_pb2")


def find_file(root: Path, name: str) -> Path:
    """Return the regular file `name` below `root`; it may be a link, as in download caches.

    Raises:
        ValueError: the name leads out of the folder, or to something that is no file.
        FileNotFoundError: there is no such file.
    """
    steps = PurePosixPath(name)
    if not name or steps.is_absolute() or ".." in steps.parts or "\\" in name or "\0" in name:
        raise ValueError(f"it names {name[:100]!r}, which is not a file in it")
    file = root / steps
    if not file.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if not file.is_file():  # reading a device or a pipe may never end
        raise ValueError(f"{file.name} is not a regular file")
    return file


def read_message(file: Path) -> bytes:
    """Return the content of a file with a protobuf message; raises ValueError above protobuf's limit."""
    if file.stat().st_size > _LARGEST_MESSAGE:
        raise ValueError(f"{file.name} has {file.stat().st_size} bytes, more than any model")
    return file.read_bytes()
