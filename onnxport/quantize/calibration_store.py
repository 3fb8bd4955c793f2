"""Where calibrations are kept: for who lists or clears them without a library of calibration's."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """Where entries lie: `$ONNXPORT_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("ONNXPORT_CACHE")
    if chosen:
        return Path(chosen) / "calibration"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "onnxport" / "calibration"
