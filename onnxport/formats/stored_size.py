"""How much an ONNX model stores, told without reading it as a model: who runs it wants to know first."""

from __future__ import annotations

from pathlib import Path

from onnxport.formats.external_data import locations

# In bytes: no graph without weights is larger, and a larger file is large.
_MOST_READ = 64 * 2**20


def stored_bytes(source: Path | bytes, folder: Path | None = None) -> int:
    """A model and the files that it names as its external data, in bytes; what is not there counts nothing.

    Args:
        source: a file, or the bytes of one.
        folder: where the external data lies; the file's own unless given.
    """
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    if size > _MOST_READ:
        return size
    if isinstance(source, Path):
        folder = source.parent
    data = source.read_bytes() if isinstance(source, Path) else source
    beside = [(folder or Path()) / name for name in locations(data)]
    return size + sum(file.stat().st_size for file in beside if file.is_file())
