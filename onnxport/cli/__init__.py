"""The command line: reads options, calls the rooms below, and prints the report."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from onnxport.cli import receipts, signals

TYPE_CHECKING = False  # true for type checkers; saves the import of typing
if TYPE_CHECKING:
    from typing import NoReturn

_COLLECTIONS = (150_000, 20, 20)
_SETTINGS = {
    # OpenBLAS, which NumPy loads: its threads wait asleep. By default each of them computes 30 ms for nothing when it
    # starts, and after every product.
    "OPENBLAS_THREAD_TIMEOUT": "4",
    # Pydantic reads the entry points of all installed distributions for plugins, which our models have no use for.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}


def make_settings() -> None:
    """Make a process's settings, for all that it imports later; what the user has set stays."""
    # Collections walk all modules and graphs that a command holds to its end: by default a tenth of a short run.
    gc.set_threshold(*_COLLECTIONS)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


def _open_closed_streams() -> None:
    """Replace closed standard streams (`>&-`) with os.devnull, so no file opened later takes their place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def _run_command() -> int:
    from onnxport.core import process_copies

    process_copies.allow(threads=2)  # this one, and the one that waits for signals
    from onnxport.cli.commands import cli

    code: int = cli.main(prog_name="onnxport", standalone_mode=False)
    return code


def main() -> NoReturn:
    """The `onnxport` command."""
    _open_closed_streams()
    make_settings()
    # Import behind the handlers: a Ctrl-C during the imports shows no traceback.
    try:
        signals.install()
        code = 0 if receipts.replay() else _run_command()
    except BaseException as error:
        if not isinstance(signals.error_to_show(error), KeyboardInterrupt):
            raise
        code = signals.CODE
    if code == signals.CODE:
        signals.report_interruption()
        signals.exit_now()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a failed print was reported there
            stream.flush()
    if "onnxport.core.scratch" in sys.modules:  # copies of URLs live as long as the process
        sys.modules["onnxport.core.scratch"].ScratchFolder.discard_all()
    # Not by sys.exit: a late Ctrl-C would show a traceback during the interpreter's shutdown.
    os._exit(code)
