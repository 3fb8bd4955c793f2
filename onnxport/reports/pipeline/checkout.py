"""Where the checkout's root is, which the services' paths start from."""

from __future__ import annotations

import os
from pathlib import Path

# What names it, of GitHub Actions and GitLab CI.
_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


def root() -> Path:
    """The service's checkout if this runs inside one, else the current folder."""
    here = Path.cwd()
    for name in _VARIABLES:
        folder = Path(os.environ.get(name) or "")
        if folder.is_absolute() and here.is_relative_to(folder.resolve()):
            return folder.resolve()
    return here


def in_checkout(path: Path) -> Path:
    """`path` from the checkout's root; absolute where it lies elsewhere."""
    whole = Path(os.path.normpath(Path.cwd() / path))
    return whole.relative_to(root()) if whole.is_relative_to(root()) else whole
