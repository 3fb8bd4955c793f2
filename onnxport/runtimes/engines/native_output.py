"""What native code prints, kept for an error message: some libraries say only there why they refuse a model."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Heard:
    """Attributes:
    text: what was printed, once the block has ended.
    """

    text: str = ""


@contextlib.contextmanager
def listening() -> Iterator[Heard]:
    """Within it, what this process prints by any way goes to `Heard.text` and nowhere else."""
    heard = Heard()
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield heard
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for place, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, place)
                os.close(descriptor)
            file.seek(0)
            heard.text = file.read().decode(errors="replace")
