"""Runs code of ours in a child process, so that a native library's crash or hang is an error message.

`litert-converter` aborts the process on some modules (SIGTRAP, SIGFPE) and a wrong artefact can take an
interpreter down; neither may take the user's command with it. A child serves one object: `Child(target)`
starts `python -m onnxport.core.child_process`, which imports `target` ("package.module:factory"), calls it once and
then answers method calls. Requests and answers are pickles over two private pipes, so whatever a library
prints on stdout or stderr cannot corrupt them; stderr is kept for the error message.

The child is started at once and without waiting: its imports overlap with the parent's work. What the parent alone
needs is imported where it is used: a bench counts every page of its children.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from onnxport.core.errors import MachineError, OnnxportError
from onnxport.core.resources import Closing

DEFAULT_TIMEOUT = 1800.0  # seconds; a compile of a 2.6 GB model takes under one minute
RUN_TIMEOUT = 600.0  # seconds for one run of a model; the largest measured (2.4 GB) takes 3
_HEADER = struct.Struct("<Q")
_GROWN = 800 * 2**20  # bytes; what a process took for one large model it does not give back before the next
_ANEW = ""  # in place of a method's name
_WATCH = 0.02  # seconds; in this time a process fills about 100 MB
_PIPE = 1 << 20  # bytes; Linux gives 64 KiB unless asked, and no user more than this


class ChildBug(RuntimeError):
    """An exception in the child that no code of ours foresaw; carries the child's traceback as text."""


class ChildDied(MachineError):
    """The child ended without an answer; what it was asked may be asked of another.

    Attributes:
        killed: from outside, as the system does when memory runs out.
    """

    killed = False


class ChildHung(MachineError):
    """The child gave no answer within its time limit, and was ended."""


class ChildTooLarge(MachineError):
    """The child took more memory than it may, and was ended.

    Attributes:
        taken: bytes that it held when that was seen.
    """

    taken = 0


class Child(Closing):
    """A process that holds one object of ours; call its methods with `call`.

    Args:
        target: "package.module:factory", importable in a fresh interpreter.
        purpose: what the child does, for error messages ("the LiteRT compiler").
        timeout: seconds that one call may take before the child is killed; None for any number.
        patience: how the user gives it more time, for the error message.
        preload: modules that the child imports before the first call arrives; a failure shows when one uses them.

    Attributes:
        memory: bytes that the process may hold while a call runs; None for any number. Files that it maps do not count.
        message: bytes that one answer may have; None for any number.
        deadline: on the clock of time.monotonic, when a call ends at the latest; None for the time limit alone.
    """

    memory: int | None = None
    message: int | None = None
    deadline: float | None = None

    def __init__(
        self,
        target: str,
        *,
        purpose: str,
        timeout: float | None = DEFAULT_TIMEOUT,
        patience: str = "",
        preload: Sequence[str] = (),
    ) -> None:
        import subprocess
        import tempfile

        self.target, self._purpose, self._timeout, self._patience = target, purpose, timeout, patience
        self._answered = 0  # calls of those that were begun
        self._asked = 0
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        child_in, self._requests = os.pipe()
        self._answers, child_out = os.pipe()
        for pipe in (self._requests, child_out):
            _widen(pipe)
        try:
            self._process = subprocess.Popen(
                # -P: a numpy.py in the user's current folder is not the library, neither here nor there.
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "onnxport.core.child_process",
                    target,
                    str(child_in),
                    str(child_out),
                    *preload,
                ],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=(child_in, child_out),
                # A Ctrl-C reaches the parent alone, which then ends the child: one clean-up, not two.
                start_new_session=True,
            )
        except OSError as error:
            self._close_pipes()
            raise MachineError(f"{purpose} could not be started", why=str(error)) from error
        finally:
            os.close(child_in)
            os.close(child_out)

    def call(self, method: str, *args: object) -> Any:
        """Calls `method` of the child's object and returns what it returned.

        Raises:
            OnnxportError, OSError: what the method raised.
            ChildDied: it ended without an answer.
            ChildHung: it took longer than the time limit.
            ChildTooLarge: it took more memory than it may.
            ChildBug: the method raised anything else.
        """
        self.ask(method, *args)
        return self.answer()

    def ask(self, method: str, *args: object) -> None:
        """Begins a call; `answer` waits for its end. Each is followed by the other.

        Raises:
            ChildDied: it has ended.
        """
        self._asked += 1
        self._send((method, args))

    def reply(self, word: object) -> None:
        """Hands `word` to the child's object, which waits for it in `Parent.word` while a call runs.

        Raises:
            ChildDied: it has ended.
        """
        self._send(word)

    def fileno(self) -> int:
        """What `select` waits on for an answer, a word, or the child's end."""
        return self._answers

    def answer(self) -> Any:
        """What the call that was begun returned; raises as `call` does."""
        while True:
            is_over, value = self.hear()
            if is_over:
                return value

    def hear(self) -> tuple[bool, Any]:
        """What comes next of the call that was begun: True with what it returned, or False with a word that the
        child's object tells meanwhile (`Parent`); raises as `call` does."""
        try:
            answer = self._read_message()
        except TimeoutError:
            self.kill()
            raise ChildHung(
                f"{self._purpose} hung", why=f"no answer within {self._timeout:g} s", fix=self._patience
            ) from None
        except EOFError:
            raise self._crashed() from None
        ok, value = pickle.loads(answer)
        if ok is None:
            return False, value
        self._answered += 1
        if ok:
            return True, value
        if isinstance(value, (OnnxportError, OSError)):
            raise value
        raise ChildBug(f"{self._purpose}: {value}")

    def _send(self, what: object) -> None:
        request = pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            _write(self._requests, request)
        except BrokenPipeError:
            raise self._crashed() from None

    def close(self) -> None:
        """Kills the child, which has nothing to finish, and frees what it held; again does nothing."""
        self.kill()
        self._close_pipes()
        self._stderr.close()

    def begin_anew(self) -> bool:
        """Has the child make its object again, as a new child would; False for one that is better closed: it has
        nothing behind it that a new one would have to repeat, is still at a call, or has grown."""
        if not self._answered or self._answered < self._asked or not 0 < self._memory()[0] < _GROWN:
            return False
        with contextlib.suppress(Exception):
            self.call(_ANEW)
            return True
        return False

    def _read_message(self) -> bytes:
        """Read the next message of the child, and watch its memory until it comes."""
        timeout = self._timeout
        if self.deadline is not None:
            import time

            left = max(self.deadline - time.monotonic(), 0.0)
            timeout = left if timeout is None else min(timeout, left)
        watch = None if self.memory is None else self._check_memory
        (length,) = _HEADER.unpack(_read(self._answers, _HEADER.size, timeout, watch))
        if self.message is not None and length > self.message:
            self._end_large(length)
        return _read(self._answers, length, timeout, watch)

    def _check_memory(self) -> None:
        resident, of_files = self._memory()
        if self.memory is not None and resident - of_files > self.memory:
            self._end_large(resident - of_files)

    def _end_large(self, taken: int) -> NoReturn:
        self.kill()
        error = ChildTooLarge(f"{self._purpose} took too much memory", why=f"{taken / 1e9:.1f} GB")
        error.taken = taken
        raise error

    def _memory(self) -> tuple[int, int]:
        """Bytes that the process holds, and those among them that are files' and shared; 0 where nobody tells."""
        try:
            resident, of_files = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1:3]
        except (OSError, ValueError):
            return 0, 0
        page = os.sysconf("SC_PAGE_SIZE")
        return int(resident) * page, int(of_files) * page

    def kill(self) -> None:
        """Ends the child, from any thread: who waits for its answer gets ChildDied."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _close_pipes(self) -> None:
        for name in ("_requests", "_answers"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _crashed(self) -> ChildDied:
        code = self._process.wait()
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        was_killed = code < 0 and -code == getattr(signal, "SIGKILL", None)
        killed = was_killed and not lines
        error = ChildDied(
            f"{self._purpose} crashed ({cause})",
            why="the system ended it, as when memory runs out" if killed else _last_telling_line(lines),
            fix="close other programs, or give smaller inputs"
            if killed
            else "run with --verbose for its output and report the model",
        )
        error.__dict__["output"] = "\n".join(lines[-200:])
        error.killed = was_killed
        return error


# Children that are done with their work, one of each target, where they are kept.
_spares: dict[str, Child] | None = None


@contextlib.contextmanager
def sparing() -> Iterator[None]:
    """Within it, children that were `borrowed` outlive their use: who makes one artefact after the other saves the
    imports of each, and all that they import stays in their memory."""
    global _spares
    _spares = {}
    try:
        yield
    finally:
        kept, _spares = _spares, None
        for child in kept.values():
            child.close()


def borrowed(target: str, *, purpose: str) -> Child:
    """A Child for `target`, which goes back by `give_back`; one that has its imports behind it where one is kept.

    Only for what writes the same bytes whatever its libraries did before: coremltools does not.
    """
    return (_spares or {}).pop(target, None) or Child(target, purpose=purpose)


def give_back(child: Child) -> None:
    """Closes `child`, or keeps it for the next who borrows one: with a new object, which knows nothing of the last."""
    if _spares is None or child.target in _spares or not child.begin_anew():
        child.close()
    else:
        _spares[child.target] = child


class Parent:
    """The parent as a served object sees it while a call runs; one with an attribute `parent` finds it there."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._lock = threading.Lock()

    def tell(self, word: object) -> None:
        """Sends `word`, which `Child.hear` gives. From any thread, but not after the call's end."""
        data = pickle.dumps((None, word), protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock, contextlib.suppress(BrokenPipeError):  # this process ends with its parent anyway
            _write(self._answers, data)

    def word(self) -> Any:
        """Waits for what the parent says by `Child.reply`."""
        return pickle.loads(_read_message(self._requests))


def _widen(pipe: int) -> None:
    """Has a pipe hold what the system allows any process, where it can be told: pictures are sent in fewer turns."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def _environment() -> dict[str, str]:
    """This process's, in which a fresh interpreter finds this package, whatever way this one found it, and goes through
    sets of names in the same order each time: exporters of others do, and the same input gives the same bytes."""
    import sysconfig

    own = os.environ | {"PYTHONHASHSEED": "0"}
    home = str(Path(__file__).parents[1])
    if home == sysconfig.get_path(
        "purelib"
    ):  # found anyway; named here it would come before the standard library
        return own
    places = [os.environ.get("PYTHONPATH", ""), home]
    return own | {"PYTHONPATH": os.pathsep.join(place for place in places if place)}


def _last_telling_line(lines: list[str]) -> str:
    """The last line that is not the library's own start-up chatter."""
    telling = [line for line in lines if line and not line.startswith(("WARNING: All log", "I0000", "INFO:"))]
    return telling[-1][:300] if telling else "it said nothing"


def _write(descriptor: int, data: bytes) -> None:
    for chunk in (_HEADER.pack(len(data)), data):
        view = memoryview(chunk)
        while view:
            view = view[os.write(descriptor, view) :]


def _read_message(descriptor: int) -> bytes:
    (length,) = _HEADER.unpack(_read(descriptor, _HEADER.size))
    return _read(descriptor, length)


def _read(
    descriptor: int, wanted: int, timeout: float | None = None, watch: Callable[[], None] | None = None
) -> bytes:
    return b"".join(_chunks(descriptor, wanted, timeout, watch))


def _chunks(
    descriptor: int, wanted: int, timeout: float | None, watch: Callable[[], None] | None
) -> Iterator[bytes]:
    while wanted:
        _wait(descriptor, timeout, watch)
        chunk = os.read(descriptor, min(wanted, 1 << 20))
        if not chunk:
            raise EOFError
        wanted -= len(chunk)
        yield chunk


def _wait(descriptor: int, timeout: float | None, watch: Callable[[], None] | None) -> None:
    """Waits for something to read, at most `timeout` seconds; meanwhile `watch` is called often, and may raise."""
    if watch is None:
        if timeout is not None and not select.select([descriptor], [], [], timeout)[0]:
            raise TimeoutError
        return
    import time

    end = None if timeout is None else time.monotonic() + timeout
    while not select.select([descriptor], [], [], _WATCH)[0]:
        watch()
        if end is not None and time.monotonic() >= end:
            raise TimeoutError


def _serve(target: str, requests: int, answers: int, preload: Sequence[str]) -> None:
    """The child's main loop: one object, many calls, until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(select, "poll"):
        threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()
    for module in preload:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)
    parent = Parent(requests, answers)
    served, failure = _start(target, parent)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            method, args = pickle.loads(_read_message(requests))
            if method == _ANEW:
                served, failure = _start(target, parent)
                answer: tuple[bool, object] = (True, None)
            else:
                answer = failure or _answer(served, method, args)
            _write(answers, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


def _end_with_parent(requests: int) -> None:
    """Ends this process when the parent's end of the pipe is gone: a parent that was killed ends no child of its own,
    and a model that hangs would compute for nobody."""
    poll = select.poll()
    poll.register(requests, 0)  # a hang-up is always told
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
    except (OnnxportError, OSError) as error:
        return False, _alone(
            error
        )  # a full disk is the caller's to explain: it knows the output's final name
    except MemoryError:
        return False, MachineError("the machine ran out of memory", why=f"in {method}")
    except Exception:
        return False, _traceback()


def _traceback() -> str:
    """Where the exception that is being handled comes from."""
    import traceback

    return traceback.format_exc()


def _alone(error: Exception) -> Exception:
    """The error without what it came from, which a library can have pickle send along (tblib, that TensorFlow loads):
    the parent would import TensorFlow to read it."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
