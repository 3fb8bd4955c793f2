"""What Python's zip archives raise for files that are damaged, encrypted, or compressed in an unknown way."""

from __future__ import annotations

import struct
import zipfile
import zlib

try:
    from lzma import LZMAError
except ImportError:  # a Python that was built without it, and so refuses such archives
    LZMAError = RuntimeError  # type: ignore[assignment,misc]

# The last four are of headers: unknown methods, missing members, sizes beyond the file.
DAMAGED_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    struct.error,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
)
