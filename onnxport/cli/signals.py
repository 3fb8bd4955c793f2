"""Ctrl-C and SIGTERM: raise a KeyboardInterrupt in the main thread, and end the process by force if that fails.

An exception from a signal handler can get lost: Python drops it in a weakref callback or a `__del__`, a library may
swallow it, and a native library in the main thread may delay it. So a second thread, woken by the signals, enforces
the end.

This module imports only what the interpreter has loaded: it runs before everything else, and the second thread must
not wait for an interrupted import of the main thread.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # true for type checkers; saves the import of typing
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

CODE = 130  # errors.INTERRUPTED; importing it would delay the handlers
PATIENCE = 1.0  # seconds for the cleanup before a second Ctrl-C may stop it
GRACE = 5.0  # seconds until the process ends without a second one

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DOCUMENT = f'{{"error": {{"kind": "Interrupted", "message": "interrupted"}}, "exit_code": {CODE}}}\n'


class _State:
    """The common state of handlers, hook and threads."""

    asked = False
    lost = False
    answered = False
    main = 0


def install() -> None:
    """Make both signals interrupt the calling (main) thread and end the process."""
    _State.main = _thread.get_ident()
    sys.unraisablehook = _on_unraisable
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    if os.name == "posix":  # elsewhere `select` takes sockets only
        waiting, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        _thread.start_new_thread(_watch, (waiting,))


def mark_answered() -> None:
    """Ignore interruptions from here on: the answer is about to be printed."""
    _State.answered = True


def error_to_show(error: BaseException) -> BaseException:
    """Return the error to show: libraries may turn a KeyboardInterrupt into errors of their own."""
    return KeyboardInterrupt() if _State.asked and not _State.answered else error


def report_interruption() -> None:
    """Print that the command was interrupted, unless an answer or an error is printed already."""
    if _State.answered:
        return
    _State.answered = True
    if "--json" in sys.argv:
        _write(1, _DOCUMENT)
    _write(2, f"error: interrupted\nexit {CODE}\n")


def exit_now() -> NoReturn:
    """End the process at once; sys.exit would wait for threads of native libraries."""
    for module, kind in (
        ("onnxport.formats.artifact", "Staging"),
        ("onnxport.core.scratch", "ScratchFolder"),
    ):
        found = getattr(sys.modules.get(module), kind, None)  # absent while the module is being imported
        if found is not None:
            found.discard_all()
    os._exit(CODE)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise once, and again if that got lost: a second Ctrl-C must not stop the cleanup."""
    if _State.answered or (_State.asked and not _State.lost) or _is_settled():
        return
    _State.asked, _State.lost = True, False
    raise KeyboardInterrupt


def _is_settled() -> bool:
    """Return whether the result is being delivered, after which the command has succeeded."""
    artifact = sys.modules.get("onnxport.formats.artifact")
    return bool(getattr(getattr(artifact, "Staging", None), "settled", False))


def _on_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Handle an exception that Python drops."""
    if _State.asked and issubclass(lost.exc_type, KeyboardInterrupt):
        _State.lost = True
        _thread.start_new_thread(_interrupt_again, ())
    else:
        sys.__unraisablehook__(lost)


def _interrupt_again() -> None:
    time.sleep(0.01)  # until the callback that lost it is over
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(_State.main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _watch(waiting: int) -> None:
    os.read(waiting, 1)
    asked = time.monotonic()
    while (left := asked + GRACE - time.monotonic()) > 0:
        if select.select([waiting], [], [], left)[0]:
            os.read(waiting, 64)
            if time.monotonic() > asked + PATIENCE:
                break
    report_interruption()
    exit_now()


def _write(descriptor: int, text: str) -> None:
    """Write to a descriptor without Python's streams, whose locks the main thread may hold; never block."""
    try:
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, text.encode())
    except OSError:
        pass
