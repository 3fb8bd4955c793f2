"""Note what a command reads and writes, by what the file system says of it.

With these notes a later command finds by os.stat alone that nothing has changed (cli/receipts.py). Whoever reads a file
on which the result depends calls `note` before; nothing happens outside of `recording`. What cannot be vouched for is
a doubt, and a command with doubts leaves no notes.
"""

from __future__ import annotations

import glob
import os
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

# Device, inode, bytes, and the times of change of content and of inode in nanoseconds. No tool can set the last one.
Stamp = tuple[int, int, int, int, int]

# Nanoseconds: FAT keeps times in steps of 2 s, kernels tick every 1 to 16 ms.
_COARSE, _FINE, _TICK = 2 * 10**9, 10**8, 3 * 10**7
_METADATA = ("METADATA", "PKG-INFO", "entry_points.txt")


def stamp_from(found: os.stat_result) -> Stamp:
    """Return the stamp of a file or folder."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def has_settled(changed: int, now: int) -> bool:
    """Return whether a write after `now` gives another time than `changed`, both in nanoseconds since the epoch.

    Two writes in one tick of the clock may leave the same time (git's "racy" entries).
    """
    return now - changed > (_COARSE if changed % 10**6 == 0 else _FINE)


@dataclass(frozen=True)
class View:
    """What a look at the file system found.

    Attributes:
        files: stamp of each path; None if nothing is there.
        folders: in which a new, removed or renamed entry would matter.
        facts: anything else.
    """

    files: dict[str, Stamp | None] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    facts: object = None


class Reads:
    """The notes of one command.

    Attributes:
        doubts: reasons why the notes vouch for nothing.
        variables: of the environment, by name, whose values the result depends on.
        kept: folders of the cache whose files the result was taken from.
    """

    def __init__(self) -> None:
        self.doubts: set[str] = set()
        self.variables: set[str] = set()
        self.kept: dict[str, None] = {}
        self._files: dict[str, Stamp | None] = {}
        self._looks: dict[tuple[Callable[..., View], tuple[Hashable, ...]], View] = {}

    def note(self, path: str | Path) -> None:
        """Note a file or folder that is about to be read."""
        name = os.path.abspath(path)
        try:
            stamp = stamp_from(os.stat(name))
        except OSError:  # whoever reads it says so, or makes it
            return
        if not has_settled(max(stamp[3:]), time.time_ns()):
            self.doubts.add(f"{name} was written just before it was read")
        if self._files.setdefault(name, stamp) != stamp:
            self.doubts.add(f"{name} changed while the command ran")

    def wrote(self, path: str | Path) -> None:
        """Note a file or folder as this command wrote or found it: its content is known."""
        name = os.path.abspath(path)
        try:
            self._files[name] = stamp_from(os.stat(name))
        except OSError:
            self.doubts.add(f"{name} is gone")

    def look(self, look: Callable[..., View], *arguments: Hashable) -> None:
        """Note what `look` finds now; `settle` looks again. An OSError of it is a doubt."""
        if (look, arguments) in self._looks:
            return
        try:
            self._looks[look, arguments] = look(*arguments)
        except OSError as error:
            self.doubts.add(str(error))

    def settle(self) -> dict[str, Stamp | None] | None:
        """Return the stamps of everything that was noted; None where anything is in doubt.

        It waits until the next write of any of it has another time than the last, at most 30 ms.
        """
        folders = {name for view in self._looks.values() for name in view.folders}
        try:
            latest = {name: stamp_from(os.stat(name)) for name in folders}
            found = {**latest, **self._files}
            for (look, arguments), view in self._looks.items():
                found |= view.files
                if look(*arguments) != view:
                    return None
            if self.doubts or not _wait_for_tick(found.values()):
                return None
            return found if all(_stamp_or_none(name) == stamp for name, stamp in found.items()) else None
        except OSError:
            return None


def _stamp_or_none(name: str) -> Stamp | None:
    try:
        return stamp_from(os.stat(name))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _wait_for_tick(stamps: Iterable[Stamp | None]) -> bool:
    """Wait until the clock has left the tick of the newest time; False where it may take longer."""
    times = {max(stamp[3:]) for stamp in stamps if stamp is not None}
    now = time.time_ns()
    if any(each > now or (each % 10**6 == 0 and not has_settled(each, now)) for each in times):
        return False
    time.sleep(max(0, max(times, default=0) + _TICK - now) / 1e9)
    return True


_current: ContextVar[Reads | None] = ContextVar("reads", default=None)


@contextmanager
def recording(reads: Reads | None) -> Iterator[None]:
    """Collect the notes of this thread in `reads`; None for none."""
    token = _current.set(reads)
    try:
        yield
    finally:
        _current.reset(token)


def note(path: str | Path) -> None:
    """See `Reads.note`."""
    if (reads := _current.get()) is not None:
        reads.note(path)


def wrote(paths: Iterable[Path]) -> None:
    """See `Reads.wrote`."""
    if (reads := _current.get()) is not None:
        for path in paths:
            reads.wrote(path)


def look(look: Callable[..., View], *arguments: Hashable) -> None:
    """See `Reads.look`."""
    if (reads := _current.get()) is not None:
        reads.look(look, *arguments)


def doubt(why: str) -> None:
    """Note that the result depends on something that a stamp does not show."""
    if (reads := _current.get()) is not None:
        reads.doubts.add(why)


def note_variable(name: str) -> None:
    """Note that the result depends on a variable of the environment."""
    if (reads := _current.get()) is not None:
        reads.variables.add(name)


def tree(folder: str) -> View:
    """Look at all files of a package but compiled ones."""
    files: dict[str, Stamp | None] = {}
    folders = set()
    for place, below, names in os.walk(folder):
        below[:] = [each for each in below if each != "__pycache__"]
        folders.add(place)
        paths = (os.path.join(place, name) for name in names if not name.endswith(".pyc"))
        files |= {path: stamp_from(os.stat(path)) for path in paths}
    return View(files, frozenset(folders))


def file(path: str) -> View:
    """Look at one file."""
    return View({path: stamp_from(os.stat(path))})


def distributions(places: tuple[str, ...]) -> View:
    """Look at the folders of sys.path, and at the versions and entry points of the distributions there."""
    files: dict[str, Stamp | None] = {}
    folders = set()
    for place in map(os.path.abspath, places):
        if not os.path.isdir(place):
            files[place] = _stamp_or_none(place)
            continue
        folders.add(place)
        for name in os.listdir(place):
            if name.endswith((".dist-info", ".egg-info")):
                inside = os.path.join(place, name)
                folders.add(inside)
                paths = (os.path.join(inside, each) for each in _METADATA)
                files |= {path: stamp for path in paths if (stamp := _stamp_or_none(path))}
    return View(files, frozenset(folders))


def no_command(name: str) -> View:
    """Look for a program, on PATH unless `name` is a path.

    Raises:
        OSError: it is there: no stamp shows the version of its installation.
    """
    if found := shutil.which(name):
        raise FileExistsError(f"{found} is a program with an installation of its own")
    searched = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders = [os.curdir] if os.path.dirname(name) else searched
    suffixes = ("", *os.environ.get("PATHEXT", "").split(os.pathsep))
    places = (os.path.abspath(os.path.join(each, name + suffix)) for each in folders for suffix in suffixes)
    return View({place: _stamp_or_none(place) for place in places})


def matches(pattern: str) -> View:
    """Look at what a pattern of `glob` matches, and at each folder that it searches."""
    parts = Path(pattern).parts
    first = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    searched = {
        place
        for number in range(first, len(parts) + ("**" in parts))
        for place in glob.glob(os.path.join("", *parts[:number]) or os.curdir, recursive=True)
        if os.path.isdir(place)
    }
    found = tuple(sorted(glob.glob(pattern, recursive=True)))
    return View(folders=frozenset(map(os.path.abspath, searched)), facts=found)
