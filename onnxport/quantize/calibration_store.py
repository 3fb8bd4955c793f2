"""The folder of stored calibrations, for listing and clearing without calibration's libraries."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of entries: `$ONNXPORT_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("ONNXPORT_CACHE")
    if chosen:
        return Path(chosen) / "calibration"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "onnxport" / "calibration"
