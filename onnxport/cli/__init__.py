"""The command line: options in, one call of the rooms below, the report out."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from onnxport.errors import INTERRUPTED


def main() -> None:
    """The `onnxport` command."""
    for interruption in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interruption, _interrupt)
    # Imported under the handlers: a Ctrl-C during the imports shows no traceback either.
    try:
        from onnxport.cli.commands import cli

        code = cli.main(prog_name="onnxport", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        # A native library may still compute in a thread, which the interpreter's own way out would wait for.
        os._exit(code)
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupts once: a second Ctrl-C must not break off the cleaning up after the first."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
