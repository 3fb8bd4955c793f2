"""The folder of what may be kept between runs of this user."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Return `$ONNXPORT_CACHE`, else `onnxport` in the user's cache folder (XDG Base Directory Specification)."""
    chosen = os.environ.get("ONNXPORT_CACHE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "onnxport"
