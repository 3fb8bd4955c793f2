"""Receipts of `onnxport run`: the same command on unchanged files is answered without the engine.

A run in which everything passed leaves a receipt in the user's cache folder (cli/run_receipt.py). Its name is a digest
of the situation: command line, folder, environment, interpreter and machine. It has a stamp of each file and folder
that the result follows from (core/reads.py), of the artefacts, of the lock and of the entries of the pipeline's cache,
and the text that the engine would print. If every stamp is still that of the file, `replay` prints the text. In any
doubt the engine runs, and writes a new receipt.

Every command imports this module, before click: it loads what the interpreter has loaded, but for a `run`.
"""

from __future__ import annotations

import contextlib
import os
import sys

from onnxport.cli import signals
from onnxport.core.user_cache import user_cache_name

TYPE_CHECKING = False  # true for type checkers; saves the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Literal

    Said = tuple[Literal["stdout", "stderr"], str]

# Variables of the environment that a shell changes from command to command.
IDLE_VARIABLES = frozenset(("_", "OLDPWD", "SHLVL"))
_FORM = 1
_MOST = 32  # receipts that are kept
# Files of a receipt; with more of them the engine is not much slower.
_MOST_FILES = 20_000
_PROCESSOR = (
    b"model name",
    b"flags",
    b"Features",
)  # lines of /proc/cpuinfo, and how much of it has the first ones
_HEAD = 1 << 13


class _State:
    """Where the receipt of this command is, or will be; empty where it has none."""

    place = ""


def replay() -> bool:
    """Answer this command by its receipt; return False where the engine has to run."""
    if sys.argv[1:2] != ["run"]:
        return False
    try:
        _State.place = os.path.join(user_cache_name(), "receipts", f"{_situation()}.json")
    except (OSError, ValueError):  # the current folder is gone
        return False
    try:
        receipt = _read(_State.place)
        is_current = all(_is_same(path, stamp) for path, stamp in receipt["files"].items())
        said = [(getattr(sys, stream), str(text)) for stream, text in receipt["said"]]
        entries = list(map(str, receipt["entries"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    return is_current and _say(said, entries)


def is_possible() -> bool:
    """Return whether this command may leave a receipt: `replay` has looked for it."""
    return bool(_State.place)


def leave(files: Mapping[str, object], entries: Iterable[str], said: Iterable[Said]) -> None:
    """Write the receipt of this command; leave it where it cannot be written.

    Args:
        files: stamp of each path, as `Reads.settle` returns them; parts of one are compared with as many parts.
        entries: folders of the cache that count as used when the receipt is.
        said: the text on each stream, in order.
    """
    import json

    if len(files) > _MOST_FILES:
        return
    text = json.dumps({"form": _FORM, "files": files, "entries": [*entries], "said": [*said]})
    beside = f"{_State.place}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(beside), exist_ok=True)
        try:
            with open(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
            ) as file:
                file.write(text)
            os.replace(beside, _State.place)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        _remove_oldest(os.path.dirname(beside))


def _situation() -> str:
    """Return a digest of all that a run depends on beside files. It hides the environment, which may hold secrets."""
    import hashlib
    import json

    facts = (
        _FORM,
        (sys.argv, os.getcwd(), sys.path),
        sorted(item for item in os.environ.items() if item[0] not in IDLE_VARIABLES),
        (sys.version, sys.executable, sys.prefix, sys.flags),
        (sys.platform, tuple(os.uname()) if hasattr(os, "uname") else (), _processor()),
        os.getuid() if hasattr(os, "getuid") else 0,
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _processor() -> list[str]:
    """Return the name and the features of the CPU, where the system has them in a file."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:
        lines = file.read(_HEAD).split(b"\n\n")[0].split(b"\n")
        return [line.decode("latin-1") for line in lines if line.startswith(_PROCESSOR)]
    return []


def _read(place: str) -> dict[str, Any]:
    """Return the content of a receipt; ValueError if it is of another form or another user's."""
    import json

    with open(place, "rb") as file:
        owner = os.fstat(file.fileno()).st_uid
        if hasattr(os, "getuid") and owner != os.getuid():
            raise ValueError("another user's")
        found: dict[str, Any] = json.loads(file.read())
    if found["form"] != _FORM:
        raise ValueError("another form")
    return found


def _is_same(path: str, stamp: list[int] | None) -> bool:
    """Return whether the file has this stamp; None for no file."""
    try:
        found = _stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return stamp is None
    now = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    return stamp is not None and len(stamp) >= 4 and now[: len(stamp)] == stamp


def _stat(path: str) -> os.stat_result:
    """Return what the system says of a file or folder; a network file system asks its server when it is opened."""
    if os.name != "posix":  # folders cannot be opened there
        return os.stat(path)
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.fstat(opened)
    finally:
        os.close(opened)


def _say(said: Iterable[tuple[Any, str]], entries: Iterable[str]) -> bool:
    """Print the text as the engine would; False if it has to, because a stream does not take the text."""
    try:
        for stream, text in said:
            text.encode(stream.encoding, stream.errors)
    except (ValueError, TypeError, LookupError):
        return False
    signals.mark_answered()
    for stream, text in said:
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:  # whoever read it has enough
            pass
        except OSError:
            if stream is sys.stdout:
                return False  # the engine says what is wrong with it
    for entry in entries:
        with contextlib.suppress(OSError):
            os.utime(entry)  # marks it as used, as the engine does
    return True


def _remove_oldest(folder: str) -> None:
    places = [entry for entry in os.scandir(folder) if entry.is_file()]
    for entry in sorted(places, key=lambda entry: entry.stat().st_mtime)[:-_MOST]:
        os.unlink(entry)
