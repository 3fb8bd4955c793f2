"""What an artefact weighs, on disk and on its way to a device."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

from onnxport.formats.artifact import Artifact

_CHUNK = 1 << 20


def compressed(artifact: Artifact) -> int:
    """Bytes of a ZIP with all its files, deflated as an app's package is; nothing is kept of it but its length."""
    sink = _Counting()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, name in zip(artifact.files, artifact.names, strict=True):
            _add(archive, file, name)
    return sink.count


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    large = file.stat().st_size >= zipfile.ZIP64_LIMIT
    with file.open("rb") as source, archive.open(entry, "w", force_zip64=large) as place:
        shutil.copyfileobj(source, place, _CHUNK)


class _Counting(io.RawIOBase):
    """A file that keeps nothing of what is written."""

    count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.count += len(data)
        return len(data)
