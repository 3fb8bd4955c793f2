"""The command line: options in, one call of the rooms below, the report out."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from onnxport.cli import signals


def _open_closed_streams() -> None:
    """Has what was started with a closed stream (`>&-`) write to nowhere, not into a file or pipe opened later."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def main() -> NoReturn:
    """The `onnxport` command."""
    _open_closed_streams()
    # Imported under the handlers: a Ctrl-C during the imports shows no traceback either.
    try:
        signals.install()
        from onnxport.cli.commands import cli

        code = cli.main(prog_name="onnxport", standalone_mode=False)
    except BaseException as error:
        if not isinstance(signals.error_to_show(error), KeyboardInterrupt):
            raise
        code = signals.CODE
    if code == signals.CODE:
        signals.report_interruption()
        signals.exit_now()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # what could not be printed was said where it was printed
            stream.flush()
    # Not through the interpreter's own way out, where a late Ctrl-C would still show a traceback.
    os._exit(code)
