"""What native code prints to descriptor 2, taken away from the terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def redirect_stderr(file: IO[bytes]) -> Iterator[None]:
    """Write to `file` in this block what goes to descriptor 2.

    For short blocks only, since other threads print there, too.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # a process without stderr
        yield
        return
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


@contextlib.contextmanager
def drop_stderr() -> Iterator[None]:
    """Drop the INFO lines that LiteRT prints at start-up, which no setting silences; errors arrive as exceptions."""
    with open(os.devnull, "wb") as devnull, redirect_stderr(devnull):
        yield
