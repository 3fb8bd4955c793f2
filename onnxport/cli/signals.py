"""Ctrl-C and SIGTERM: a KeyboardInterrupt for the main thread to unwind with, and an end by force if that fails.

An exception that a signal handler raises can get lost: Python drops it where it arises in a weakref callback or
a `__del__`, a library may swallow it, and a native one that computes in the main thread never lets it arise.
So a thread that the signals wake as well watches the way out.

Nothing here imports more than the interpreter has loaded anyway: it comes before everything else, and the
watching thread must not wait for an import that the main thread was torn from.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

CODE = 130  # errors.INTERRUPTED, whose module would be imported before the handlers stand
PATIENCE = 1.0  # seconds for the cleaning up, which a second Ctrl-C does not break off before
GRACE = 5.0  # seconds until the process ends without a second one

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DOCUMENT = f'{{"error": {{"kind": "Interrupted", "message": "interrupted"}}, "exit_code": {CODE}}}\n'


class _State:
    """What handlers, hook and threads know in common."""

    asked = False
    lost = False
    answered = False
    main = 0


def install() -> None:
    """From now on both signals interrupt the calling thread, which is the main one, and the process ends."""
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
    """The answer is about to be printed: from here on an interruption comes too late to change it."""
    _State.answered = True


def error_to_show(error: BaseException) -> BaseException:
    """What `error` is to be shown as: libraries turn a KeyboardInterrupt inside them into errors of their own."""
    return KeyboardInterrupt() if _State.asked and not _State.answered else error


def report_interruption() -> None:
    """Says that the command was interrupted, unless its answer or another error is being said already."""
    if _State.answered:
        return
    _State.answered = True
    if "--json" in sys.argv:
        _write(1, _DOCUMENT)
    _write(2, f"error: interrupted\nexit {CODE}\n")


def exit_now() -> NoReturn:
    """Ends the process at once. A native library may still compute in a thread, which sys.exit would wait for."""
    artifact = sys.modules.get("onnxport.formats.artifact")
    staging = getattr(artifact, "Staging", None)  # absent while the module is being imported
    if staging is not None:
        staging.discard_all()
    os._exit(CODE)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raises once, and again if that got lost: a second Ctrl-C must not break off the cleaning up."""
    if _State.answered or (_State.asked and not _State.lost) or _is_settled():
        return
    _State.asked, _State.lost = True, False
    raise KeyboardInterrupt


def _is_settled() -> bool:
    """Whether the result is moving to its place, after which the command has succeeded."""
    artifact = sys.modules.get("onnxport.formats.artifact")
    return bool(getattr(getattr(artifact, "Staging", None), "settled", False))


def _on_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Is called with every exception that Python drops."""
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
    """Writes past Python's streams, whose locks the main thread may hold; not to a reader that does not read."""
    try:
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, text.encode())
    except OSError:
        pass
