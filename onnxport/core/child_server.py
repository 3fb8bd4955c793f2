"""The child's side of child_process.py: one object, many calls, until the parent closes the pipe."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from onnxport.core import process_copies
from onnxport.core.confinement import confine, limit_resources, limit_seconds
from onnxport.core.errors import MachineError, OnnxportError
from onnxport.core.limits import advice, is_given
from onnxport.core.pipe_messages import RECREATE, read_message, write_message


class Parent:
    """The parent's side of a call, for the served object; set as its attribute `parent` where it has one."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._lock = threading.Lock()

    def tell(self, word: object) -> None:
        """Send `word`, which `Child.hear` returns; from any thread, but not after the call's end."""
        data = pickle.dumps((None, word), protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock, contextlib.suppress(BrokenPipeError):  # this process ends with its parent anyway
            write_message(self._answers, data)

    def word(self) -> Any:
        """Wait for a message of `Child.reply` and return it."""
        return pickle.loads(read_message(self._requests))


def serve(
    settings: Mapping[str, Any], target: str, requests: int, answers: int, preload: Sequence[str]
) -> None:
    """Create the object of `target` and answer the calls that arrive at `requests`.

    Args:
        settings: the limits of this process (confinement.py): "memory" and "file" in bytes, and "folders", where it
            is confined.
        target: "package.module:factory".
        requests, answers: descriptors of pipes.
        preload: modules to import first; those that fail raise at their first use.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_resources(settings["memory"], settings["file"])
    if "folders" in settings:
        confine(settings["folders"])
    if hasattr(select, "poll"):
        threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()
    process_copies.allow(threads=2)  # this one, and the one that waits for the parent's end
    gc.disable()  # imports make much that lives and nothing that dies
    for module in preload:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)
    parent = Parent(requests, answers)
    served, failure = _start(target, parent)
    gc.freeze()
    gc.enable()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            method, args, seconds = pickle.loads(read_message(requests))
            if seconds is not None:
                limit_seconds(seconds)  # for one that outlives its parent
            if method == RECREATE:
                served = failure = None  # frees the last one first
                gc.collect()
                served, failure = _start(target, parent)
                answer: tuple[bool, object] = (True, None)
            else:
                answer = failure or _answer(served, method, args)
            write_message(answers, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


def _end_with_parent(requests: int) -> None:
    """End this process when the parent's end of the pipe closes: a killed parent cannot end its children."""
    poll = select.poll()
    poll.register(requests, 0)  # poll always reports a hang-up
    poll.poll()
    os._exit(0)


def _start(target: str, parent: Parent) -> tuple[Any, tuple[bool, object] | None]:
    module, _, factory = target.partition(":")
    try:
        served = getattr(importlib.import_module(module), factory)()
    except OnnxportError as error:
        return None, (False, error)
    except Exception:
        return None, (False, _traceback())
    if hasattr(served, "parent"):
        served.parent = parent
    return served, None


def _answer(served: Any, method: str, args: tuple[object, ...]) -> tuple[bool, object]:
    try:
        return True, getattr(served, method)(*args)
    except (OnnxportError, OSError) as error:  # the caller explains a full disk: it knows the final name
        return False, _without_context(error)
    except MemoryError:
        fix = f"give smaller inputs; {advice('child-memory')}" if is_given("child-memory") else ""
        return False, MachineError("the machine ran out of memory", why=f"in {method}", fix=fix)
    except Exception:
        return False, _traceback()


def _traceback() -> str:
    """Return the traceback of the exception that is being handled."""
    import traceback

    return traceback.format_exc()


def _without_context(error: Exception) -> Exception:
    """Drop an error's cause and traceback: tblib, which TensorFlow loads, makes pickle send them."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
