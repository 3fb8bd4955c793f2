"""Files of other machines: `fetch` before they are read, `place_for` and `upload` where they are written.

These are the only places where a URL becomes a path; everything behind them sees local files, in folders that go when
the process ends. core/urls.py keeps their names: errors and reports show the URL. fsspec and the packages of its
protocols are imported at the first URL.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from onnxport.core.errors import InputError, MachineError, MissingDependencyError, OnnxportError, UsageError
from onnxport.core.limits import advice, limit
from onnxport.core.scratch import ScratchFolder
from onnxport.core.urls import is_url, name_as, without_secrets
from onnxport.formats.external_data import locations

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")
_WEB = ("http", "https")
# Scheme -> the modules that it needs, and our extra that installs them. Chains of fsspec (`zip::`) and `file` are left
# out on purpose: docs/internals/security.md.
PROTOCOLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(_WEB, (("fsspec", "aiohttp"), "remote")),
    "s3": (("fsspec", "s3fs"), "s3"),
    "gs": (("fsspec", "gcsfs"), "gs"),
    "hf": (("fsspec", "huggingface_hub"), "hf"),
    "oci": (("fsspec", "oras"), "oci"),
    "memory": (("fsspec",), "remote"),
}
_PIN = re.compile(r"#sha256=([0-9A-Fa-f]{64})$")
_MOST_DATA_FILES = 10_000  # of a model; each costs a request
_LONGEST_NAME = 255  # bytes, of file systems
_SECONDS = 60  # without a byte from a server
_NO_FILE, _REFUSED, _NO_PUT = (404, 410), (401, 403), (405, 501)


@dataclass(frozen=True)
class Url:
    """A URL: `text` is what fsspec takes, `pin` the SHA-256 that its file must have."""

    scheme: str
    text: str
    pin: str = ""

    @classmethod
    def parse(cls, given: str) -> Url:
        """Read a URL; UsageError for a scheme that is not in PROTOCOLS, and where it names no file."""
        scheme = given.partition("://")[0].lower()
        plain = without_secrets(given)
        name_as(given, plain)
        if scheme not in PROTOCOLS:
            known = ", ".join(f"{name}://" for name in PROTOCOLS)
            raise UsageError(f"{plain} cannot be opened: {scheme} is not known", fix=f"known are {known}")
        pin = _PIN.search(given)
        text = given[: pin.start()] if pin else given
        if "#sha256" in text:
            what = f"the digest behind {plain} is not a SHA-256"
            raise UsageError(what, fix="write #sha256= and 64 hexadecimal digits")
        name_as(text, plain)
        found = cls(scheme, text, pin[1].lower() if pin else "")
        name = found.name
        if not name or name in (".", "..") or not name.isprintable() or re.search(r"[/\\]", name):
            raise UsageError(f"{plain} names no file", fix="give the URL of a file")
        return found

    @property
    def name(self) -> str:
        """The name of the file or folder."""
        path = (urlsplit(self.text).path if self.scheme in _WEB else self.text.partition("://")[2]).rstrip(
            "/"
        )
        name = path.rpartition("/")[2]
        return unquote(name) if self.scheme in _WEB else name

    @property
    def is_folder(self) -> bool:
        return (urlsplit(self.text).path if self.scheme in _WEB else self.text).endswith("/")

    def beside(self, name: str) -> Url:
        """Return the URL of another file in the same folder; of the web, with the same query."""
        if self.scheme in _WEB:
            from urllib.parse import quote

            parts = urlsplit(self.text)
            folder = parts.path.rstrip("/").rpartition("/")[0]
            return replace(self, text=parts._replace(path=f"{folder}/{quote(name)}").geturl(), pin="")
        return replace(self, text=f"{self.text.rstrip('/').rpartition('/')[0]}/{name}", pin="")

    def below(self, name: str) -> Url:
        """Return the URL of a file in this folder; of the web, with the same query."""
        if self.scheme in _WEB:
            parts = urlsplit(self.text)
            return replace(
                self, text=parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl(), pin=""
            )
        return replace(self, text=f"{self.text.rstrip('/')}/{name}", pin="")

    def __str__(self) -> str:
        return without_secrets(self.text)


_scratch: list[ScratchFolder] = []
_outputs: dict[Path, Url] = {}  # folder for files to upload -> the URL of one of them


def fetch(given: T) -> T | Path:
    """Return the local copy of the file or folder that a URL names, with a model's external data; else `given`.

    Raises:
        UsageError: the scheme is unknown, or the URL names no file.
        MissingDependencyError: the package for the scheme is missing.
        InputError: it does not exist, may not be read, is too large, or differs from its `#sha256=`.
        MachineError: the server cannot be reached or fails, or the disk is full.
    """
    if not isinstance(given, str) or not is_url(given):
        return given
    url = Url.parse(given)
    with _transfer(url, "fetched"):
        files = _open(url)
        place = _folder(url) / url.name
        left = _Budget(url, limit("download"))
        if url.scheme not in _WEB and (url.is_folder or _is_folder(files, url)):
            _fetch_folder(files, url, place, left)
        elif url.is_folder:
            raise UsageError(f"{url} is a folder", why="the web has no folders", fix="give the URL of a file")
        else:
            _fetch_file(files, url, place, left)
            _check_pin(url, place)
            if place.suffix.lower() == ".onnx":
                _fetch_data(files, url, place, left)
    return place


def place_for(given: T) -> T | Path:
    """Return where to write what `upload` brings to a URL; `given` if it is no URL. UsageError as `fetch`."""
    if not isinstance(given, str) or not is_url(given):
        return given
    url = Url.parse(given)
    if url.pin:
        raise UsageError(f"{url} is an output and cannot have a digest", fix="leave out #sha256=")
    with _transfer(url, "written"):
        _open(url)
    folder = _folder(url)
    _outputs[folder] = url
    place = folder / url.name
    if url.is_folder:
        place.mkdir()
    return place


def upload(files: Iterable[Path]) -> None:
    """Bring written files, or folders, to their URLs, in this order; those without a URL stay where they are.

    Raises:
        InputError, MachineError: as `fetch`.
    """
    for file in files:
        target = _target(file)
        if target is None:
            continue
        with _transfer(target, "written"):
            to = _open(target)
            if file.is_dir():
                _upload_folder(to, file, target)
            else:
                _upload_file(to, file, target)


def beside(source: Path, name: str) -> Path:
    """Return the path of a file beside a model; in the current folder for a model of a URL."""
    return Path(name) if _is_copy(source) else source.with_name(name)


def has_copies() -> bool:
    """Return whether this process has used a URL."""
    return bool(_scratch)


def _is_copy(path: Path) -> bool:
    return any(Path(folder.name) in path.parents for folder in _scratch)


def _target(file: Path) -> Url | None:
    """Return the URL that a written file is for."""
    for folder, url in _outputs.items():
        if folder in file.parents:
            below = file.relative_to(folder)
            return url if file.name == url.name and not url.is_folder else url.beside(below.as_posix())
    return None


def _folder(url: Url) -> Path:
    """Make the folder of a copy, which errors and reports show as the folder of the URL."""
    if not _scratch:
        _scratch.append(ScratchFolder())
    parent = Path(_scratch[0].name)
    folder = parent / f"url{len(list(parent.iterdir()))}-{os.urandom(4).hex()}"
    folder.mkdir()
    shown = str(url).rstrip("/").rpartition("/")[0]
    for each in {folder, folder.resolve()}:
        name_as(str(each), shown)
    return folder


def _is_folder(files: AbstractFileSystem, url: Url) -> bool:
    if url.scheme != "gs":
        return bool(files.isdir(url.text))
    # gcsfs tries six times for half a minute, and again for each part of a fetch: `isdir` would hide that it failed.
    try:
        return bool(files.info(url.text)["type"] == "directory")
    except FileNotFoundError:
        return False


def _open(url: Url) -> AbstractFileSystem:
    """Return the file system of a URL; MissingDependencyError if its package is missing."""
    modules, extra = PROTOCOLS[url.scheme]
    absent = [name.replace("_", "-") for name in modules if find_spec(name) is None]
    if absent:
        fix = f"run: {sys.executable} -m pip install 'onnxport[{extra}]'"
        what = f"{url.scheme}:// needs {' and '.join(absent)}, which is not installed"
        raise MissingDependencyError(what, fix=fix)
    if url.scheme == "oci":
        from onnxport.formats.oci import OciFiles

        return OciFiles(skip_instance_cache=True)
    import fsspec

    # gcsfs logs each attempt with its traceback, which a program without logging prints; errors arrive as exceptions.
    logging.getLogger("gcsfs").addHandler(logging.NullHandler())
    settings: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if url.scheme in _WEB:
        import aiohttp

        waits = aiohttp.ClientTimeout(total=None, sock_connect=_SECONDS, sock_read=_SECONDS)
        settings["client_kwargs"] = {"timeout": waits, "trust_env": True}
    if url.scheme == "memory":
        settings = {}
    files: AbstractFileSystem = fsspec.filesystem(url.scheme, **settings)
    return files


class RemoteFolder:
    """A folder of single files that is read and written at any time; UsageError for a URL that names none.

    Args:
        on_bytes: called whenever bytes arrive or leave.
    """

    def __init__(self, given: str, on_bytes: Callable[[], None] = lambda: None) -> None:
        self._url = Url.parse(given)
        if self._url.pin:
            raise UsageError(f"{self._url} is a folder and cannot have a digest", fix="leave out #sha256=")
        self._on_bytes = on_bytes

    def __str__(self) -> str:
        return str(self._url)

    def check(self) -> None:
        """Raise MissingDependencyError if the package of its scheme is missing."""
        _open(self._url)

    def get(self, name: str, place: Path) -> bool:
        """Fetch a file; False where there is none. Raises InputError and MachineError as `fetch`."""
        url = self._url.below(name)
        with _transfer(url, "fetched"):
            try:
                _fetch_file(_open(url), url, place, _Budget(url, limit("download")), self._on_bytes)
            except FileNotFoundError:
                return False
        return True

    def put(self, file: Path, name: str) -> None:
        """Write a file. Raises as `upload`."""
        url = self._url.below(name)
        with _transfer(url, "written"):
            files = _open(url)
            if url.scheme == "memory":
                files.makedirs(url.text.rpartition("/")[0], exist_ok=True)
            _upload_file(files, file, url, self._on_bytes)


class _Budget:
    """The bytes that may still be fetched for a URL."""

    def __init__(self, url: Url, left: int) -> None:
        self._url, self.left = url, left

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            what = f"{self._url} is larger than {limit('download')} bytes"
            raise InputError(what, fix=advice("download"))

    def refuse_above(self, size: int | None) -> None:
        if size is not None and size > self.left:
            self.take(size)


def _fetch_file(
    files: AbstractFileSystem,
    url: Url,
    place: Path,
    left: _Budget,
    on_bytes: Callable[[], None] = lambda: None,
) -> None:
    """Fetch a file; what arrives is counted, whatever the server said before."""
    from fsspec import Callback

    class Count(Callback):  # type: ignore[misc]
        seen = 0

        def set_size(self, size: int | None) -> None:
            left.refuse_above(size)

        def relative_update(self, inc: int = 1) -> None:
            self.seen += inc
            on_bytes()
            left.refuse_above(self.seen)

    files.get_file(url.text, str(place), callback=Count())
    left.take(place.stat().st_size)


def _fetch_folder(files: AbstractFileSystem, url: Url, place: Path, left: _Budget) -> None:
    """Fetch all files below a folder, which keep their relative paths."""
    root = PurePosixPath(files._strip_protocol(url.text))
    found = files.find(url.text, detail=True)
    if not found:
        raise FileNotFoundError(url.text)
    left.refuse_above(sum(info.get("size") or 0 for info in found.values()))
    for name in found:
        below = PurePosixPath(name).relative_to(root)
        if ".." in below.parts:
            raise InputError(f"{url} has a file {below.as_posix()!r}, which lies outside of it")
        target = place / below
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch_file(files, replace(url, text=f"{url.text.rstrip('/')}/{below.as_posix()}"), target, left)


def _fetch_data(files: AbstractFileSystem, url: Url, model: Path, left: _Budget) -> None:
    """Fetch the external data files that an ONNX model names; the loader refuses those that are missing."""
    if not model.stat().st_size:
        return
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = sorted(filter(_is_plain, locations(data)))
    if len(names) > _MOST_DATA_FILES:
        raise InputError(f"{url} names {len(names)} data files", why=f"{_MOST_DATA_FILES} are possible")
    for name in names:
        place = model.parent / name
        if place == model:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            _fetch_file(files, url.beside(name), place, left)
        except FileNotFoundError:
            place.unlink(missing_ok=True)


def _is_plain(name: str) -> bool:
    """Return whether a data file's name is a relative path below the model's folder."""
    path = PurePosixPath(name)
    fits = name.isprintable() and "\\" not in name and len(os.fsencode(name)) <= _LONGEST_NAME
    return fits and bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _check_pin(url: Url, place: Path) -> None:
    if url.pin:
        with place.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
        if found != url.pin:
            what = f"{url} has changed: its SHA-256 is {found}, not {url.pin}"
            raise InputError(what, fix="if the new content is right, give its digest")


def _upload_file(
    files: AbstractFileSystem, file: Path, url: Url, on_bytes: Callable[[], None] = lambda: None
) -> None:
    """Upload a file; to the web by PUT, with its size: storages refuse pieces of unknown number."""
    from fsspec import Callback

    class Alive(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            on_bytes()

    web: dict[str, Any] = {}
    if url.scheme in _WEB:
        web = {"method": "put", "headers": {"Content-Length": str(file.stat().st_size)}}
    files.put_file(str(file), url.text, callback=Alive(), **web)


def _upload_folder(files: AbstractFileSystem, folder: Path, url: Url) -> None:
    """Upload a folder, its main file last, and remove files there that it does not have."""
    written = sorted(
        (each for each in folder.rglob("*") if each.is_file()), key=lambda file: file.parent == folder
    )
    text = url.text.rstrip("/")
    for file in written:
        _upload_file(files, file, replace(url, text=f"{text}/{file.relative_to(folder).as_posix()}"))
    if url.scheme not in _WEB:
        kept = {files._strip_protocol(f"{text}/{file.relative_to(folder).as_posix()}") for file in written}
        for stale in {*files.find(text)} - kept:
            files.rm_file(stale)


@contextmanager
def _transfer(url: Url, verb: str) -> Iterator[None]:
    """Turn the errors of a transfer into ours; their own texts may have tokens, so they are not shown."""
    try:
        yield
    except OnnxportError:
        raise
    except Exception as error:
        raise _failure(error, url, verb) from None


def _failure(error: Exception, url: Url, verb: str) -> OnnxportError:
    what = f"{url} cannot be {verb}"
    if url.scheme == "oci" and isinstance(error, ValueError):
        if "oci://" in str(error):
            return UsageError(what, why="it has no place in a registry", fix=str(error))
        error = PermissionError() if "authentication" in str(error) else error
    status = getattr(error, "status", None)
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or status in _NO_FILE:
        if verb == "written":
            return UsageError(
                what, why="there is no such place", fix="create the bucket, or give another URL"
            )
        return InputError(what, why="it does not exist")
    if isinstance(error, PermissionError) or status in _REFUSED or "Credentials" in kind:
        refused = InputError if verb == "fetched" else MachineError
        fix = "check the credentials that its library reads from the environment"
        return refused(what, why="the server refuses access", fix=fix)
    if verb == "written" and status in _NO_PUT:
        why = f"the server takes no files (status {status} to PUT)"
        return UsageError(what, why=why, fix="give another URL")
    if status is not None:
        return MachineError(what, why=f"the server answers with status {status}", fix="try again later")
    if isinstance(error, TimeoutError):
        return MachineError(what, why=f"the server was silent for {_SECONDS} seconds", fix="try again later")
    if isinstance(error, OSError) and error.errno is not None and not hasattr(error, "host"):
        return MachineError(what, why=os.strerror(error.errno))
    return MachineError(
        what, why=f"the connection failed ({kind})", fix="check the host's name and the network"
    )
