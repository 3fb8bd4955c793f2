"""Files in registries of containers, as artifacts that `oras` pushes and pulls: oci://HOST/NAME:TAG/FILE.

A tag is a manifest with a layer for each file, whose title is the file's name (OCI image specification 1.1; ORAS,
"artifacts"). A file that is written is added to its tag, or replaces the one of its name there. oras-py reads the
credentials of `docker login` and `oras login`. It speaks http to this machine only.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import oras.defaults
import oras.oci
import oras.provider
from fsspec import AbstractFileSystem, Callback

_PLACE = re.compile(
    r"(?P<host>[^/@]+)/(?P<name>[^:@]+)(?P<tag>:[^/:@]+|@sha256:[0-9a-f]{64})(?:/(?P<file>.*))?"
)
_HERE = ("localhost", "127.0.0.1")
_TITLE = oras.defaults.annotation_title
_TYPE = "application/vnd.onnxport.artifact"
_LARGEST = 4 << 20  # bytes of a manifest, as registries have it
_SECONDS = 60  # without a byte from the registry
_PIECE = 1 << 20


class NoPlace(ValueError):
    """A path that names no tag."""


class RegistryError(OSError):
    """An answer of the registry that is no success; `status` is its number."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


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
        try:
            manifest = _manifest(registry, container)
        except FileNotFoundError:
            manifest = oras.oci.NewManifest() | {"artifactType": _TYPE, "layers": []}
        others = [each for each in manifest["layers"] if _title(each) != name]
        _write(registry, container, manifest | {"layers": sorted([*others, layer], key=_title)})

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
        manifest = _manifest(registry, container)
        _write(
            registry, container, manifest | {"layers": [e for e in manifest["layers"] if _title(e) != name]}
        )


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


def _write(registry: Any, container: Any, manifest: dict[str, Any]) -> None:
    config, _ = oras.oci.ManifestConfig()
    with oras.provider.temporary_empty_config() as file:
        _checked(registry.upload_blob(file, container, config))
    _checked(registry.upload_manifest(manifest | {"config": config}, container))


def _checked(answer: Any) -> Any:
    if answer.status_code == 404:
        raise FileNotFoundError(answer.url)
    if answer.status_code >= 400:
        raise RegistryError(answer.status_code)
    return answer


def _title(layer: dict[str, Any]) -> str:
    return str((layer.get("annotations") or {}).get(_TITLE, ""))
