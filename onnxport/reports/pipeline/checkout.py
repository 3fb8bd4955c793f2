"""The root of the checkout, from which paths in CI services start."""

from __future__ import annotations

import os
from pathlib import Path

# They name the root in GitHub Actions and GitLab CI.
_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


def root() -> Path:
    """Return the service's checkout if this runs inside one, else the current folder."""
    here = Path.cwd()
    for name in _VARIABLES:
        folder = Path(os.environ.get(name) or "")
        if folder.is_absolute() and here.is_relative_to(folder.resolve()):
            return folder.resolve()
    return here


def in_checkout(path: Path) -> Path:
    """Return `path` relative to the checkout's root; absolute where it lies elsewhere."""
    full = Path(os.path.normpath(Path.cwd() / path))
    return full.relative_to(root()) if full.is_relative_to(root()) else full
