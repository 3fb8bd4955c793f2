"""What code of the user's own was, in a process where it ran: its modules, the files that it read, and its libraries.

A factory, a pickle, a metric or a plugin may import and read anything; what it gave follows from that. What a native
library opens by itself (safetensors, h5py) is not seen.
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

from onnxport.core.user_modules import found_module

_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parent)
_SCRATCH = ".onnxport"  # how our folders' names begin
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Consulted:
    """What was used.

    Attributes:
        modules: the user's, by name, and the SHA-256 of each one's file; "" where that was written meanwhile.
        files: what else was read, by its path from the current folder if it lies below that, likewise.
        libraries: distributions and their versions.
    """

    modules: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)


class Watch:
    """Sees what is read in this process from now on; as a context manager, until the block ends.

    Args:
        known: files and folders whose contents the caller knows of already.
    """

    _live: list[Watch] = []  # noqa: RUF012 - of all, for the one hook that a process has
    _is_hooked = False

    def __init__(self, known: Collection[Path] = ()) -> None:
        self._folder = os.getcwd()
        self._begun = time.time()
        self._known = tuple(os.path.abspath(path) for path in known)
        self._opened: set[str] = set()

    def __enter__(self) -> Watch:
        if not Watch._is_hooked:
            sys.addaudithook(_saw)
            Watch._is_hooked = True
        Watch._live.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Watch._live.remove(self)

    def saw(self, path: str) -> None:
        self._opened.add(path)

    def consulted(self) -> Consulted:
        """What was used so far."""
        modules, files = {}, {}
        for name, file in _users_modules():
            found = found_module(name)
            if found is not None and os.path.samefile(found, file):
                modules[name] = self._sha256(file)
            else:
                self._opened.add(file)
        for file in sorted(self._opened):
            if self._is_news(file):
                name = os.path.relpath(file, self._folder) if _below(file, (self._folder,)) else file
                files[name] = self._sha256(file)
        return Consulted(modules, files, dict(_libraries()))

    def _sha256(self, file: str) -> str:
        """Of a file; "" if it was written since the watch began, perhaps after it was read."""
        if os.stat(file).st_mtime >= self._begun:
            return ""
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _is_news(self, file: str) -> bool:
        is_scratch = any(part.startswith(_SCRATCH) for part in Path(file).parts) or (
            _below(file, (tempfile.gettempdir(),)) and not _below(file, (self._folder,))
        )
        if is_scratch or _below(file, self._known) or not _is_users(file):
            return False
        return os.path.isfile(file) and os.access(file, os.R_OK)


def _saw(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not Watch._live:
        return
    path, mode, flags = args
    reads = "r" in mode if isinstance(mode, str) else not flags & (os.O_WRONLY | os.O_RDWR)
    if reads and isinstance(path, str | bytes | os.PathLike):
        name = os.path.abspath(os.fsdecode(path))
        for watch in tuple(Watch._live):
            watch.saw(name)


def _is_users(file: str) -> bool:
    """Whether a file is neither the system's nor Python's nor a library's nor ours."""
    parts = Path(file).parts
    places = (*_SYSTEM, *_LIBRARIES, _OURS, sys.prefix, sys.base_prefix)
    return not (_below(file, places) or _INSTALLED & set(parts) or file.endswith(".pyc"))


def _below(file: str, places: Collection[str]) -> bool:
    return any(file == place or file.startswith(os.path.join(place, "")) for place in places)


def _users_modules() -> Iterator[tuple[str, str]]:
    """Name and file of the modules that are loaded."""
    for name, module in tuple(sys.modules.items()):
        file = _file_of(module)
        if file and name not in ("__main__", "__mp_main__") and _is_users(file) and os.path.isfile(file):
            yield name, file


def _file_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) else ""


def _libraries() -> Iterator[tuple[str, str]]:
    """The distributions of what is loaded beside the user's modules, ours and Python's."""
    loaded = {
        name.partition(".")[0]
        for name, module in tuple(sys.modules.items())
        if (file := _file_of(module)) and not _is_users(file) and not _below(file, (_OURS,))
    }
    by_module = _by_module()
    names = {name for module in loaded - sys.stdlib_module_names for name in by_module.get(module, ())}
    for name in sorted(names):
        yield name, metadata.version(name)


@lru_cache(maxsize=1)
def _by_module() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
