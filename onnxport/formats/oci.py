"""Files in registries of containers, as artifacts that `oras` pushes and pulls: oci://HOST/NAME:TAG/FILE.

A tag is a manifest with a layer for each file, whose title is the file's name (OCI image specification 1.1; ORAS,
"artifacts"). A file that is written is added to its tag, or replaces the one of its name there. oras-py reads the
credentials of `docker login` and `oras login`. It speaks http to this machine only.

A registry has no compare-and-swap for tags: of two who read a tag and then write it, one's file would be lost. So a
writer looks once more after it waited longer than reading and writing takes, and writes again if its file is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import oras.defaults
import oras.oci
import oras.provider
from fsspec import AbstractFileSystem, Callback

from onnxport.core.errors import MachineError

_PLACE = re.compile(
    r"(?P<host>[^/@]+)/(?P<name>[^:@]+)(?P<tag>:[^/:@]+|@sha256:[0-9a-f]{64})(?:/(?P<file>.*))?"
)
_HERE = ("localhost", "127.0.0.1")
_TITLE = oras.defaults.annotation_title
_TYPE = "application/vnd.onnxport.artifact"
_LARGEST = 4 << 20  # bytes of a manifest, as registries have it
_SECONDS = 60  # without a byte from the registry
_PIECE = 1 << 20
_WAIT = 0.5  # seconds, at least, after which a writer looks whether another one undid what it wrote
_TRIES = 12
_BAD = 400  # HTTP's status


class NoPlace(ValueError):
    """A path that names no tag."""


class RegistryError(OSError):
    """An answer of the registry that is no success; `status` is its number."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class _Doubled(RegistryError):
    """The answer where two upload one blob at once: docker-registry loses the second's."""


class OciFiles(AbstractFileSystem):  # type: ignore[misc]
    """The file system of remote.py: whole files only."""

    protocol = "oci"
    cachable = False

    def get_file(self, rpath: str, lpath: str, callback: Any = None, **_: Any) -> None:
        """Fetch a file; what arrives has to have the digest of the manifest."""
        registry, container, name = _open(rpath)
        layer = next(
            (each for each in _manifest(registry, container)["layers"] if _title(each) == name), None
        )
        if layer is None:
            raise FileNotFoundError(rpath)
        callback = callback or Callback()
        callback.set_size(layer["size"])
        digest = hashlib.sha256()
        answer = _checked(registry.get_blob(container, layer["digest"], stream=True))
        with Path(lpath).open("wb") as file:
            for piece in answer.iter_content(_PIECE):
                file.write(piece)
                digest.update(piece)
                callback.relative_update(len(piece))
        if f"sha256:{digest.hexdigest()}" != layer["digest"]:
            raise OSError(f"{rpath} has other bytes than its manifest says")

    def put_file(self, lpath: str, rpath: str, callback: Any = None, **_: Any) -> None:
        """Write a file: its blob first, then the manifest."""
        registry, container, name = _open(rpath)
        layer = oras.oci.NewLayer(lpath, media_type=_TYPE)
        layer["annotations"] = {_TITLE: name}
        _checked(registry.upload_blob(lpath, container, layer))
        if callback is not None:
            callback.relative_update(layer["size"])
        _exchange(registry, container, name, layer)

    def find(self, path: str, detail: bool = False, **_: Any) -> Any:
        """Return the files of a tag, or of a folder in it."""
        registry, container, below = _open(path)
        place = path.rstrip("/").removesuffix(below.rstrip("/")).rstrip("/")
        try:
            layers = _manifest(registry, container)["layers"]
        except FileNotFoundError:
            layers = []
        inside = f"{below.rstrip('/')}/" if below else ""
        found = {
            self._strip_protocol(f"{place}/{_title(each)}"): {"size": each["size"]}
            for each in layers
            if _title(each).startswith(inside)
        }
        return found if detail else list(found)

    def isdir(self, path: str) -> bool:
        return bool(self.find(path))

    def rm_file(self, path: str) -> None:
        registry, container, name = _open(path)
        _exchange(registry, container, name, None)


def _open(path: str) -> tuple[Any, Any, str]:
    """Return the registry, the container and the file of a path."""
    found = _PLACE.fullmatch(path.removeprefix("oci://"))
    if found is None:
        raise NoPlace("write oci://HOST/NAME:TAG/FILE")
    is_here = found["host"].partition(":")[0] in _HERE
    registry = oras.provider.Registry(hostname=found["host"], insecure=is_here)
    registry.session.request = partial(registry.session.request, timeout=_SECONDS)
    container = registry.get_container(f"{found['host']}/{found['name']}{found['tag']}")
    registry.auth.load_configs(container)
    return registry, container, found["file"] or ""


def _manifest(registry: Any, container: Any) -> dict[str, Any]:
    url = f"{registry.prefix}://{container.manifest_url()}"
    headers = {"Accept": oras.defaults.default_manifest_media_type}
    answer = _checked(registry.do_request(url, "GET", headers=headers, stream=True))
    text = answer.raw.read(_LARGEST, decode_content=True)
    manifest = json.loads(text)
    layers = [each for each in manifest["layers"] if _title(each)]
    return {**manifest, "layers": layers}


def _exchange(registry: Any, container: Any, name: str, layer: dict[str, Any] | None) -> None:
    """Make `layer` the file of this name, or leave it out; MachineError if other writers undo it again and again."""
    wanted = None if layer is None else layer["digest"]
    for _ in range(_TRIES):
        started = time.monotonic()
        before = _write(registry, container, name, layer)
        wait = max(_WAIT, 2 * (time.monotonic() - started))
        time.sleep(wait * (1 + random.random()))  # two writers do not keep step
        found = _digest(_manifest_or_none(registry, container), name)
        # Another digest is that of a later writer of this file.
        if found == wanted or found != before:
            return
    raise MachineError(
        f"{container.uri}: {name} is lost each time it is written, since others write to the tag",
        fix="write again when they are done, or give each run a tag of its own",
    )


def _write(registry: Any, container: Any, name: str, layer: dict[str, Any] | None) -> str | None:
    """Write the tag's manifest with `layer` as the file of this name; return the digest of the file before."""
    config, _ = oras.oci.ManifestConfig()
    manifest = _manifest_or_none(registry, container)
    others = [each for each in manifest["layers"] if _title(each) != name]
    layers = sorted([*others, *([] if layer is None else [layer])], key=_title)
    with oras.provider.temporary_empty_config() as file, contextlib.suppress(_Doubled):
        _checked(registry.upload_blob(file, container, config))
        _checked(registry.upload_manifest(manifest | {"config": config, "layers": layers}, container))
    return _digest(manifest, name)


def _manifest_or_none(registry: Any, container: Any) -> dict[str, Any]:
    """Return the manifest of a tag, one without files where there is none yet."""
    try:
        return _manifest(registry, container)
    except FileNotFoundError:
        return dict(oras.oci.NewManifest()) | {"artifactType": _TYPE, "layers": []}


def _digest(manifest: dict[str, Any], name: str) -> str | None:
    return next((each["digest"] for each in manifest["layers"] if _title(each) == name), None)


def _checked(answer: Any) -> Any:
    if answer.status_code == 404:
        raise FileNotFoundError(answer.url)
    if answer.status_code >= 400:
        raise (_Doubled if answer.status_code == _BAD else RegistryError)(answer.status_code)
    return answer


def _title(layer: dict[str, Any]) -> str:
    return str((layer.get("annotations") or {}).get(_TITLE, ""))
