"""Record which user modules and libraries a process imported, and which files it read.

The result of a factory, a pickle, a metric or a plugin depends on them. Files that a native library opens itself
(safetensors, h5py) are not recorded.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxport.core.user_modules import find_module

_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])
_SCRATCH = ".onnxport"  # prefix of our folders' names
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class UsedCode:
    """The modules, files and libraries that were used."""

    # Name of each user module -> SHA-256 of its file; "" where the file was written meanwhile.
    modules: Mapping[str, str] = field(default_factory=dict)
    # Path of each other file -> SHA-256, likewise; relative if it lies below the current folder.
    files: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)  # distribution -> version


class Watch:
    """A context manager that records the files that this process opens, without the `known` files and folders."""

    _live: list[Watch] = []  # noqa: RUF012 - all watches, for the one hook of the process
    _is_hooked = False

    def __init__(self, known: Collection[Path] = ()) -> None:
        self._folder = os.getcwd()
        self._begun = time.time()
        self._known = tuple(os.path.abspath(path) for path in known)
        self._opened: set[str] = set()

    def __enter__(self) -> Watch:
        if not Watch._is_hooked:
            sys.addaudithook(_record_open)
            Watch._is_hooked = True
        Watch._live.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Watch._live.remove(self)

    def consulted(self) -> UsedCode:
        """Return what was used so far."""
        modules, files = {}, {}
        for name, file in _user_modules():
            found = find_module(name)
            if found is not None and os.path.samefile(found, file):
                modules[name] = self._sha256(file)
            else:
                self._opened.add(file)
        for file in sorted(self._opened):
            if self._is_user_file(file):
                name = os.path.relpath(file, self._folder) if _below(file, (self._folder,)) else file
                files[name] = self._sha256(file)
        return UsedCode(modules, files, dict(_libraries()))

    def _sha256(self, file: str) -> str:
        """Return a file's SHA-256; "" if it was written since the watch began, perhaps after it was read."""
        if os.stat(file).st_mtime >= self._begun:
            return ""
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _is_user_file(self, file: str) -> bool:
        is_scratch = any(part.startswith(_SCRATCH) for part in Path(file).parts) or (
            _below(file, (tempfile.gettempdir(),)) and not _below(file, (self._folder,))
        )
        if is_scratch or _below(file, self._known) or not _is_user_path(file):
            return False
        return os.path.isfile(file) and os.access(file, os.R_OK)


def _record_open(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not Watch._live:
        return
    path, mode, flags = args
    reads = "r" in mode if isinstance(mode, str) else not flags & (os.O_WRONLY | os.O_RDWR)
    if reads and isinstance(path, str | bytes | os.PathLike):
        name = os.path.abspath(os.fsdecode(path))
        for watch in tuple(Watch._live):
            watch._opened.add(name)


def _is_user_path(file: str) -> bool:
    """Return whether a file belongs to the user: not to the system, Python, a library or onnxport."""
    parts = Path(file).parts
    places = (*_SYSTEM, *_LIBRARIES, _OURS, sys.prefix, sys.base_prefix)
    return not (_below(file, places) or _INSTALLED & set(parts) or file.endswith(".pyc"))


def _below(file: str, places: Collection[str]) -> bool:
    return any(file == place or file.startswith(os.path.join(place, "")) for place in places)


def _user_modules() -> Iterator[tuple[str, str]]:
    """Yield name and file of each loaded user module."""
    for name, module in tuple(sys.modules.items()):
        file = _file(module)
        if file and name not in ("__main__", "__mp_main__") and _is_user_path(file) and os.path.isfile(file):
            yield name, file


def _file(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) else ""


def _libraries() -> Iterator[tuple[str, str]]:
    """Yield name and version of the distributions of all other loaded modules, except ours and Python's."""
    loaded = {
        name.partition(".")[0]
        for name, module in tuple(sys.modules.items())
        if (file := _file(module)) and not _is_user_path(file) and not _below(file, (_OURS,))
    }
    by_module = _distributions_by_module()
    names = {name for module in loaded - sys.stdlib_module_names for name in by_module.get(module, ())}
    for name in sorted(names):
        yield name, metadata.version(name)


@lru_cache(maxsize=1)
def _distributions_by_module() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
