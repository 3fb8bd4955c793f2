"""SHA-256 of files: a process reads a file once while it is unchanged."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from onnxport.core.reads import Stamp, has_settled, stamp_from

_MOST = 4096
_known: dict[Stamp, bytes] = {}


def sha256(file: Path) -> bytes:
    """Return the SHA-256 of a file. It is read again if it was written or moved since, or just before.

    Raises:
        OSError: it cannot be read.
    """
    stamp, begun = stamp_from(file.stat()), time.time_ns()
    if stamp in _known:
        return _known[stamp]
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    if has_settled(max(stamp[3:]), begun) and stamp_from(file.stat()) == stamp:
        if len(_known) >= _MOST:
            _known.clear()
        _known[stamp] = digest
    return digest


def forget() -> None:
    """Read every file again."""
    _known.clear()
