"""The files of artefacts: read ahead, compressed, and asked for their precision, once for all rows."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.precision import precision_of

_CHUNK = 1 << 20


@dataclass
class Files:
    """Artefacts by path, graphs of the ONNX models among them, and figures of their files."""

    artifacts: dict[Path, Artifact]
    graphs: list[Model]
    precisions: dict[Path, str] = field(default_factory=dict)
    zipped: dict[Path, int] = field(default_factory=dict)


def open_files(artifacts: Sequence[Artifact]) -> Files:
    """Open the artefacts with all their files; an unreadable one stays as it is: its row shows the runtime's error."""
    files = Files({}, [])
    for artifact in artifacts:
        files.artifacts[artifact.path] = artifact
        if artifact.format == "onnx":
            try:
                model = Model.load(artifact.path)
            except OnnxportError:
                continue
            files.artifacts[artifact.path] = model.artifact
            files.graphs.append(model)
    for artifact in files.artifacts.values():
        _read_ahead(artifact)
    return files


def _read_ahead(artifact: Artifact) -> None:
    """Bring the files into the system's cache: otherwise the first load would include the disk's time."""
    for path in artifact.files:
        with path.open("rb", buffering=0) as file:
            while file.read(_CHUNK):
                pass


def weigh(files: Files) -> None:
    """Compress all artefacts, several at a time, and find their precisions."""
    with ThreadPoolExecutor() as pool:
        zipped = {path: pool.submit(compressed_size, artifact) for path, artifact in files.artifacts.items()}
    files.zipped = {path: future.result() for path, future in zipped.items()}
    graphs = {graph.path: graph for graph in files.graphs}
    for path, artifact in files.artifacts.items():
        try:
            files.precisions[path] = precision_of(artifact, graphs.get(path))
        except (OnnxportError, ImportError):  # the row shows what is wrong with the file
            files.precisions[path] = ""


def compressed_size(artifact: Artifact) -> int:
    """Return the bytes of a ZIP with all files, deflated as in an app's package."""
    sink = _CountingSink()
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


class _CountingSink(io.RawIOBase):
    """A file that only counts the bytes."""

    count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.count += len(data)
        return len(data)
