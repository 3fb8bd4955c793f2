"""Imports of the user's own modules: a metric, a factory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def current_directory_first() -> Iterator[None]:
    """As `python -m` imports. Afterwards it comes last, so that no file there stands in for a library of ours."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)
