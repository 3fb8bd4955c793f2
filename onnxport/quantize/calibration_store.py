"""The folder of stored calibrations, for listing and clearing without calibration's libraries."""

from __future__ import annotations

from pathlib import Path

from onnxport.core.user_cache import user_cache


def cache_folder() -> Path:
    """Return the folder of entries: `calibration` in user_cache()."""
    return user_cache() / "calibration"
