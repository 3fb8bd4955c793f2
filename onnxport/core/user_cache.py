"""The folder of what may be kept between runs of this user."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # true for type checkers; a repeated `onnxport run` does without pathlib
if TYPE_CHECKING:
    from pathlib import Path


def user_cache() -> Path:
    """Return the folder of `user_cache_name`."""
    from pathlib import Path

    return Path(user_cache_name())


def user_cache_name() -> str:
    """Return `$ONNXPORT_CACHE`, else `onnxport` in the user's cache folder (XDG Base Directory Specification)."""
    chosen = os.environ.get("ONNXPORT_CACHE")
    if chosen:
        return chosen
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "onnxport")
