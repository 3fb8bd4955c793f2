"""Capture what native code prints: some libraries report only there why they refuse a model."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Output:
    """The text that was printed; set at the end of the block."""

    text: str = ""


@contextlib.contextmanager
def captured_output() -> Iterator[Output]:
    """Redirect what this process prints, native code included, to `Output.text`."""
    output = Output()
    sys.stdout.flush()
    sys.stderr.flush()
    originals = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield output
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in enumerate(originals, start=1):
                os.dup2(original, number)
                os.close(original)
            file.seek(0)
            output.text = file.read().decode(errors="replace")
