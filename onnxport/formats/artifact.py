"""A model on disk as a set of files: its format, its tensors, and how it is replaced atomically.

An `.onnx` file may have its weights beside it, an `.ort` file its operator list, and an `.mlpackage` is a folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from onnxport.core.errors import InputError, MachineError, OnnxportError, UsageError, printable
from onnxport.core.file_digests import sha256
from onnxport.core.folder_swap import exchange
from onnxport.core.missing_paths import unreadable_path
from onnxport.core.shell_words import quote
from onnxport.formats import remote

Format = Literal["onnx", "tflite", "coreml", "ort"]
# In the order of messages. Each format but onnx is a target of the same name.
FORMATS: dict[str, Format] = {".onnx": "onnx", ".tflite": "tflite", ".mlpackage": "coreml", ".ort": "ort"}
SUFFIXES: dict[Format, str] = {name: suffix for suffix, name in FORMATS.items()}
# Formats of folders -> the file that every such folder has.
FOLDERS: dict[Format, str] = {"coreml": "Manifest.json"}
# Suffixes of similar formats that we do not read -> the fix.
_RELATIVES = {
    ".mlmodel": "it is Core ML's older form of one file; an ML program is an .mlpackage: convert the ONNX model again",
    ".mlmodelc": "it is a compiled Core ML model; give the .mlpackage that it was compiled from",
    **dict.fromkeys(
        (".pt", ".pth", ".pt2", ".pkl", ".joblib", ".skops", ".keras", ".h5", ".pb"),
        "it belongs to a framework: onnxport export makes an .onnx file of it",
    ),
}

# A dimension: its size, the name of a symbol, or None where it is unknown.
Dim = int | str | None


Stamp = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: its name, its NumPy dtype name ("float32", "string", ...), its shape."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.shape)

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return printable(f"{self.name}: {self.dtype}[{dims}]")


@dataclass(frozen=True)
class Artifact:
    """A readable model and its files: below the folder of `path`, or inside `path` where that is a folder."""

    path: Path
    format: Format
    companions: tuple[Path, ...] = ()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Artifact:
        """Return the artefact at `path`.

        Raises:
            UsageError: `path` is no path.
            InputError: it is missing, empty, unreadable, a directory without a model, or of an unknown extension.
        """
        path = path_of(path, "a model", fix="give a path to an .onnx file; save a ModelProto first")
        known = ", ".join(FORMATS)
        format_ = FORMATS.get(path.suffix.lower())
        try:
            if path.is_dir() and format_ in FOLDERS:
                return cls._of_folder(path, format_)
            if path.is_dir():
                fix = _RELATIVES.get(path.suffix.lower()) or f"give a model file ({known})"
                raise InputError(f"{path} is a directory", fix=fix)
            if path.exists() and not path.is_file():  # opening a pipe would wait
                raise InputError(f"{path} is not a regular file", fix=f"give a model file ({known})")
            with path.open("rb") as file:
                first = file.read(1)
        except OSError as error:
            raise unreadable_path(path, error) from error
        if format_ is None:
            raise InputError(
                f"{path} has no known extension of a model format",
                why=_RELATIVES.get(path.suffix.lower(), ""),
                fix=f"known are {known}",
            )
        if not first:
            raise InputError(f"{path} is empty", fix="copy, download or convert it again")
        if format_ in FOLDERS:
            raise InputError(
                f"{path} is a file",
                why=f"a model of format {path.suffix} is a folder",
                fix="unpack it if it is an archive",
            )
        _check_unicode(path)
        return cls(path, format_)

    @classmethod
    def _of_folder(cls, path: Path, format_: Format) -> Artifact:
        """Return the artefact of a folder."""
        if not (path / FOLDERS[format_]).is_file():
            empty = not any(path.iterdir())
            why = "it is empty" if empty else f"it has no {FOLDERS[format_]}"
            raise InputError(f"{path} is not a Core ML package", why=why)
        _check_unicode(path)
        return cls(path, format_)

    @property
    def is_folder(self) -> bool:
        return self.format in FOLDERS

    @property
    def files(self) -> tuple[Path, ...]:
        if self.is_folder:
            return tuple(sorted(file for file in self.path.rglob("*") if file.is_file()))
        return (self.path, *self.companions)

    @property
    def names(self) -> tuple[str, ...]:
        """The files' names; in a folder, their relative paths."""
        if self.is_folder:
            return tuple(file.relative_to(self.path).as_posix() for file in self.files)
        return tuple(file.name for file in self.files)

    @property
    def size(self) -> int:
        """Bytes on disk, companions included."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def stamp(self) -> Stamp:
        """Inode, bytes and times in nanoseconds of each file; they change when a file is written or moved.

        The second time, of the last change to the inode, is one that nobody can set. It is 0 for a file with several
        names, as products in a cache: another name changes it, too.
        """
        return stamp_of(self.files)

    def digest(self, content: Callable[[Path], bytes] | None = None) -> str:
        """Return the SHA-256 over every file's relative name and content, sorted by name.

        The name of the main file, or of the folder, does not count: a renamed copy has the same digest. `content`
        returns the SHA-256 of a file; by default the file is read, once while it is unchanged.
        """
        tree = hashlib.sha256()
        root = self.path if self.is_folder else self.path.parent
        for file in self.files if self.is_folder else (self.path, *sorted(self.companions)):
            name = "" if file == self.path else file.relative_to(root).as_posix()
            tree.update(name.encode() + b"\0" + (content or sha256)(file))
        return tree.hexdigest()


def stamp_of(files: Iterable[Path]) -> Stamp:
    """Return `Artifact.stamp` of files."""
    stats = [file.stat() for file in files]
    return tuple(
        (found.st_ino, found.st_size, found.st_mtime_ns, 0 if found.st_nlink > 1 else found.st_ctime_ns)
        for found in stats
    )


class Referent(Protocol):
    """The reference of a comparison, for the report: an Artifact, or a framework's model."""

    @property
    def path(self) -> Path: ...

    @property
    def format(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def stamp(self) -> Stamp: ...

    def digest(self) -> str: ...


def path_of(given: str | os.PathLike[str], what: str, *, fix: str, writes: bool = False) -> Path:
    """Return a caller's path of `what`, of a URL that of its local copy; raises UsageError where it is none.

    `writes` says that a file is to be written there. Raises as remote.fetch does.
    """
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise UsageError(f"{what} must be given by its path, not as {type(given).__name__}", fix=fix)
    if "\0" in os.fspath(given):
        raise UsageError(f"the path of {what} contains a null character", fix=fix)
    if not os.fspath(given):
        raise UsageError(f"the path of {what} is empty", fix=fix)
    return Path(remote.place_for(given) if writes else remote.fetch(given))


def _check_unicode(path: Path) -> None:
    if not _is_unicode(path):
        raise InputError(
            f"{path} has a path that is not UTF-8",
            why="the libraries that read models cannot open it",
            fix="rename it, or give a link to it",
        )


def _is_unicode(path: Path) -> bool:
    """Return whether the path is UTF-8; Python shows any other bytes as surrogates."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


_STAGING_PREFIX = ".onnxport-"
_BEFORE = "before"  # folder in the staging folder for the old output, until the new one is in place
_MOST_TRIES = 8  # to replace a folder that other runs replace at the same time


class Staging:
    """A private folder beside the output, whose files get their final names all at once or never.

    Use as a context manager: write below `folder`, then `commit`. An error or Ctrl-C before that removes the folder.
    The folder of a killed run stays, with the process number in its name; the next run that writes there removes it.

    Args:
        option: the option of `output`, for messages.
        folder: whether `output` is a folder; the caller checks an existing one.

    Attributes:
        settled: of the class: an artefact is moving to its place, and an interruption comes too late.
    """

    settled: ClassVar[bool] = False
    _live: ClassVar[set[Path]] = set()

    def __init__(self, output: Path, option: str = "-o", *, folder: bool = False) -> None:
        self.output, self._option, self._is_folder = output, option, folder
        self.folder = Path()

    def __enter__(self) -> Staging:
        with writing(self.output, self._option):
            self.check()
            parent = self.output.parent
            _sweep(parent, self._live)
            self.folder = parent / f"{_STAGING_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
            self._live.add(self.folder)  # before mkdir: an interruption may fall between the two
            try:
                self.folder.mkdir(mode=0o700)
            except OSError:
                self._live.discard(self.folder)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        _discard(self.folder)
        self._live.discard(self.folder)

    def commit(self, files: dict[Path, Path]) -> None:
        """Flush the staged files to disk and move each to its final path; the last one is the main file.

        Those for a URL are uploaded then.
        """
        with writing(self.output, self._option):
            _flush(files)
            with self._settling(True):
                for staged, final in files.items():
                    os.replace(staged, final)
            remote.upload(files.values())

    def commit_folder(self, staged: Path, final: Path | None = None) -> None:
        """Move a staged folder to `output`; the end of the block removes the old one.

        `final` is the path of an artefact in place of `output`, after whose move an interruption comes too late.
        """
        target = final or self.output
        with writing(self.output, self._option):
            _flush(path for path in staged.rglob("*") if path.is_file())
            with self._settling(final is not None):
                _replace_folder(staged, target, self.folder / _BEFORE / target.name)
            remote.upload((target,))

    @staticmethod
    @contextlib.contextmanager
    def _settling(is_artifact: bool) -> Iterator[None]:
        Staging.settled = is_artifact
        try:
            yield
        except BaseException:
            Staging.settled = False
            raise

    @classmethod
    def discard_all(cls) -> None:
        """Remove every staging folder of this process, for an exit that does not unwind the stack."""
        for folder in tuple(cls._live):
            _discard(folder)

    def check(self) -> None:
        """Raise UsageError where the output cannot be written."""
        if not _is_unicode(self.output):
            what = f"{self.output} cannot be written: its path is not UTF-8"
            raise UsageError(what, fix=f"give {self._option} another name")
        if self._is_folder:
            self._check_alone()
        parent = self.output.parent
        nearest = next(folder for folder in (parent, *parent.parents) if folder.exists())
        if self.output.is_dir() and not self._is_folder:
            raise UsageError(f"{self.output} is a directory", fix=f"give {self._option} a file name")
        if not nearest.is_dir():
            raise UsageError(
                f"{self.output} cannot be written: {nearest} is a file, not a folder",
                fix=f"give {self._option} a path in a folder",
            )
        if nearest != parent:
            raise UsageError(
                f"the folder {parent} for the output does not exist",
                fix=f"create it: mkdir -p {quote(parent)}",
            )

    def _check_alone(self) -> None:
        """Raise UsageError where this process also writes another file inside the output, such as a report."""
        place = self.output.resolve()
        for other in tuple(self._live):  # other threads change it
            if place in other.resolve().parents:
                raise UsageError(
                    f"{self.output} is replaced as a whole, and another output lies inside it",
                    fix="give the other output a path beside it",
                )


@contextlib.contextmanager
def writing(output: Path, option: str = "-o") -> Iterator[None]:
    """Turn an OSError in the block into the user's error for `output`."""
    try:
        yield
    except OnnxportError:
        raise
    except OSError as error:
        raise write_failure(output, error, option) from error


def write_failure(output: Path, error: OSError, option: str = "-o") -> MachineError:
    """Return the MachineError with the cause and the fix of a failed write."""
    fixes = {
        errno.ENOSPC: f"free some space or give {option} a path on another disk",
        errno.EFBIG: "a file size limit is set; raise it: ulimit -f, or --limit child-file=SIZE",
        errno.EDQUOT: f"the disk quota is used up; give {option} a path on another disk",
    }
    fix = fixes.get(error.errno or 0, f"give {option} a path that you may write to")
    return MachineError(f"{output} cannot be written", why=error.strerror or str(error), fix=fix)


def _flush(files: Iterable[Path]) -> None:
    """Flush files to disk."""
    for file in files:
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())


def _replace_folder(staged: Path, final: Path, before: Path) -> None:
    """Move the folder `staged` to `final`, and the old one into the staging folder."""
    for _ in range(_MOST_TRIES):
        try:
            if not os.path.lexists(final):
                os.rename(staged, final)
            elif not exchange(staged, final):
                before.parent.mkdir()
                os.replace(final, before)
                os.replace(staged, final)
            return
        except OSError as error:  # another run was faster, and created or removed `final`
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise
            if not staged.is_dir() or before.parent.exists():
                raise
    raise OSError(errno.EBUSY, "other programs keep replacing it", str(final))


def _discard(folder: Path) -> None:
    """Remove a staging folder; restore an old output first where no new one has replaced it."""
    with contextlib.suppress(OSError):
        for old in (folder / _BEFORE).iterdir():
            if not os.path.lexists(folder.parent / old.name):
                os.rename(old, folder.parent / old.name)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(folder: Path, live: set[Path]) -> None:
    """Remove staging folders of ended processes, also of one that had our number, as in successive containers."""
    for stale in folder.glob(f"{_STAGING_PREFIX}*-*"):
        process = stale.name.removeprefix(_STAGING_PREFIX).partition("-")[0]
        if not process.isdigit():
            continue
        ours = int(process) == os.getpid()
        if stale not in live if ours else not _is_alive(int(process)):
            _discard(stale)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # on Windows os.kill would end the process
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
