"""Run our code in a child process, so that a native library's crash or hang is an error message.

A child serves one object: `Child(target)` starts a process (child_server.py) which imports `target`
("package.module:factory"), calls it once and then answers method calls. Requests and answers are pickles over two
private pipes, which output of libraries cannot corrupt; stdout and stderr go to the error message.

The child starts at once, and its imports overlap with the parent's work. It is an interpreter of its own, or, where it
`shares` modules with the parent, a copy of the parent that has them loaded (process_copies.py).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from onnxport.core import process_copies
from onnxport.core.errors import MachineError, OnnxportError
from onnxport.core.limits import advice, limit
from onnxport.core.pipe_messages import RECREATE, read, read_length, widen, write_message
from onnxport.core.resources import Closing

if TYPE_CHECKING:
    import subprocess

DEFAULT_TIMEOUT = 1800.0  # seconds; compiling a 2.6 GB model takes under one minute
RUN_TIMEOUT = 600.0  # seconds for one run of a model; the largest measured (2.4 GB) takes 3
_MOST_REUSED = 800 * 2**20  # bytes; a process does not return the memory of a large model before the next one
_MOST_LEFT = 300 * 2**20  # bytes that it may hold after its object is gone; libraries alone take up to 150 MB
# Bytes that a reader or optimizer of a model may hold, a compiler, and each for a byte of its weights. The same on
# every machine, as are the artefacts. LiteRT's compiler takes 2.4 GB for a network of 1.3 MB with many steps.
_LEAST_ALLOWED, COMPILERS, _ALLOWED_FOR_WEIGHTS = 2_000_000_000, 4_000_000_000, 8
_RESET = 10.0  # seconds for the new object
_PLAIN: Mapping[str, str] = {}
ONE_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1"}  # for NumPy, where others compute


class ChildBug(RuntimeError):
    """An unexpected exception in the child; carries the child's traceback as text."""


class ChildDied(MachineError):
    """The child ended without an answer; `killed` if by SIGKILL, as the system does when memory runs out."""

    killed = False


class ChildHung(MachineError):
    """The child exceeded its time limit and was ended."""


class ChildTooLarge(MachineError):
    """The child exceeded its memory limit, holding `taken` bytes, and was ended.

    Where `is_answer`, the bytes are those of an answer, above the limit of one answer.
    """

    taken = 0
    is_answer = False


class Child(Closing):
    """A process that serves one object; `call` calls its methods.

    Args:
        target: "package.module:factory", importable in a fresh interpreter.
        purpose: the child's task, for error messages ("the LiteRT compiler").
        timeout: seconds after which a call is ended; None for no limit.
        patience: advice for the user after a timeout, for the error message.
        preload: modules that the child imports before the first call; a module that fails raises at its first use.
        environment: variables for the child where the user's environment has none of that name.
        writes: the folders that it may write to, beside one for its temporary files; the network is closed then, too
            (confinement.py). None for a child that runs the user's code, with the user's rights.
        offline: whether the network is closed to a child without `writes`.
        shares: modules that the parent needs, too. Where the parent may be copied (process_copies.py), it loads them
            now, and the child begins with them.

    Attributes:
        memory: bytes that the process may hold while a call runs, without mapped files; None for no limit.
        message: bytes that one answer may have; None for no limit.
        deadline: time.monotonic() at which a call ends at the latest; None for the timeout alone.
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
        environment: Mapping[str, str] = _PLAIN,
        writes: Sequence[Path] | None = None,
        offline: bool = False,
        shares: Sequence[str] = (),
    ) -> None:
        import tempfile

        from onnxport.core.scratch import ScratchFolder

        self.target, self._purpose, self._timeout, self._patience = target, purpose, timeout, patience
        self.environment, self.offline = environment, offline
        self.writes = None if writes is None else tuple(writes)
        self._temporary = None if writes is None else ScratchFolder()
        self._asked = self._answered = 0  # calls begun and ended
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        child_in, self._requests = os.pipe()
        self._answers, child_out = os.pipe()
        for pipe in (self._requests, child_out):
            widen(pipe)
        try:
            self._process = self._start(child_in, child_out, preload, shares)
        except OSError as error:
            self._close_pipes()
            self._remove_temporary()
            raise MachineError(f"{purpose} could not be started", why=str(error)) from error
        finally:
            os.close(child_in)
            os.close(child_out)

    def _start(
        self, requests: int, answers: int, preload: Sequence[str], shares: Sequence[str]
    ) -> subprocess.Popen[bytes] | process_copies.Copy:
        """Start the process: a copy of this one if it may be, else an interpreter of its own."""
        settings = self._settings()
        variables = {**self.environment, **_environment()}
        if self._temporary is not None:
            variables["TMPDIR"] = self._temporary.name
        if shares and process_copies.load(shares, settings["memory"]):
            work = partial(_serve_in_copy, settings, self.target, requests, answers, preload)
            return process_copies.Copy(work, variables, self._stderr.fileno(), (requests, answers))
        import json
        import subprocess

        return subprocess.Popen(
            # -P: a numpy.py in the current folder must not replace the library.
            [
                *(sys.executable, "-P", "-m", "onnxport.core.child_server"),
                *(json.dumps(settings), self.target, str(requests), str(answers), *preload),
            ],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=(requests, answers),
            # Ctrl-C reaches the parent alone, which then ends the child: one clean-up, not two.
            start_new_session=True,
        )

    def _settings(self) -> dict[str, Any]:
        """Return the limits of the process, and the folders that it may write to where it is confined."""
        from onnxport.core.memory import machine_memory

        memory = machine_memory() or sys.maxsize
        settings: dict[str, Any] = {
            "memory": limit("child-memory", memory),
            "file": limit("child-file", memory),
        }
        if self._temporary is not None:
            settings["folders"] = [self._temporary.name, *map(str, self.writes or ())]
        elif self.offline:
            settings["folders"] = None
        return settings

    def call(self, method: str, *args: object) -> Any:
        """Call `method` of the child's object and return its result.

        Raises:
            OnnxportError, OSError: the method raised it.
            ChildDied: the child ended without an answer.
            ChildHung: the call exceeded the time limit.
            ChildTooLarge: the child exceeded the memory limit.
            ChildBug: the method raised any other exception.
        """
        self.ask(method, *args)
        return self.answer()

    def ask(self, method: str, *args: object) -> None:
        """Begin a call; `answer` must follow and waits for its end. Raises ChildDied: the child has ended."""
        self._asked += 1
        self._send((method, args, self._timeout))

    def reply(self, word: object) -> None:
        """Send `word` to the child's object, which waits for it in `Parent.word` while a call runs (ChildDied)."""
        self._send(word)

    def fileno(self) -> int:
        """Return the descriptor that `select` waits on for an answer, a word, or the child's end."""
        return self._answers

    def answer(self) -> Any:
        """Wait for the end of the call and return its result; raises as `call`."""
        while True:
            is_over, value = self.hear()
            if is_over:
                return value

    def hear(self) -> tuple[bool, Any]:
        """Wait for the next message: (True, result), or (False, word) from `Parent.tell`; raises as `call`."""
        try:
            answer = self._read_message()
        except TimeoutError:
            self.kill()
            raise ChildHung(
                f"{self._purpose} hung", why=f"no answer within {self._timeout:g} s", fix=self._patience
            ) from None
        except EOFError:
            raise self._death() from None
        ok, value = pickle.loads(answer)
        if ok is None:
            return False, value
        self._answered += 1
        if ok:
            return True, value
        if isinstance(value, (OnnxportError, OSError)):
            raise value
        raise ChildBug(f"{self._purpose}: {value}")

    @contextlib.contextmanager
    def bounded(
        self, weights: int, least: int = _LEAST_ALLOWED, copies: int = _ALLOWED_FOR_WEIGHTS
    ) -> Iterator[None]:
        """Limit the memory of calls for a model with `weights` bytes, unless the user has set that limit.

        Args:
            least: bytes without weights.
            copies: bytes for each byte of weights.

        Raises:
            ChildTooLarge: a call exceeded it; the message names the option that raises it.
        """
        self.memory = limit("child-memory", least + copies * weights)
        try:
            yield
        except ChildTooLarge as large:
            large.why = f"it held {large.taken / 1e9:.1f} GB when it was ended"
            large.fix = advice("child-memory", 2 * large.taken)
            raise
        finally:
            self.memory = None

    def _send(self, message: object) -> None:
        request = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            write_message(self._requests, request)
        except BrokenPipeError:
            raise self._death() from None

    def close(self) -> None:
        """Kill the child and free its resources; a second call does nothing."""
        self.kill()
        self._close_pipes()
        self._stderr.close()
        self._remove_temporary()

    def begin_anew(self) -> bool:
        """Have the child create its object again, for reuse; False where closing it is better.

        That is: it has answered no call yet, is still in a call, or has grown large.
        """
        import time

        if not self._answered or self._answered < self._asked or not 0 < self._memory()[0] < _MOST_REUSED:
            return False
        self.memory = self.message = None
        self.deadline = time.monotonic() + _RESET
        with contextlib.suppress(Exception):
            self.call(RECREATE)
            self.deadline = None
            resident, of_files = self._memory()
            return resident - of_files < _MOST_LEFT
        return False

    def lend(self, purpose: str, timeout: float | None, patience: str) -> None:
        """Take the settings of the next borrower."""
        self._purpose, self._timeout, self._patience = purpose, timeout, patience

    @property
    def is_fresh(self) -> bool:
        """True if the process has not been called yet."""
        return not self._asked

    def _read_message(self) -> bytes:
        """Read the child's next message, and watch its memory until it arrives."""
        timeout = self._timeout
        if self.deadline is not None:
            import time

            left = max(self.deadline - time.monotonic(), 0.0)
            timeout = left if timeout is None else min(timeout, left)
        watch = None if self.memory is None else self._check_memory
        length = read_length(self._answers, timeout, watch)
        if self.message is not None and length > self.message:
            self._end_large(length, is_answer=True)
        return read(self._answers, length, timeout, watch)

    def _check_memory(self) -> None:
        resident, of_files = self._memory()
        if self.memory is not None and resident - of_files > self.memory:
            self._end_large(resident - of_files)

    def _end_large(self, taken: int, *, is_answer: bool = False) -> NoReturn:
        self.kill()
        error = ChildTooLarge(f"{self._purpose} took too much memory", why=f"{taken / 1e9:.1f} GB")
        error.taken, error.is_answer = taken, is_answer
        raise error

    def _memory(self) -> tuple[int, int]:
        """Return the bytes that the process holds, and those of them that are mapped files; 0 where unknown."""
        try:
            resident, of_files = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1:3]
        except (OSError, ValueError):
            return 0, 0
        page = os.sysconf("SC_PAGE_SIZE")
        return int(resident) * page, int(of_files) * page

    def kill(self) -> None:
        """Kill the child, from any thread; a waiting caller gets ChildDied."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _close_pipes(self) -> None:
        for name in ("_requests", "_answers"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _death(self) -> ChildDied:
        code = self._process.wait()
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        was_killed = code < 0 and -code == getattr(signal, "SIGKILL", None)
        killed = was_killed and not lines
        error = ChildDied(
            f"{self._purpose} crashed ({cause})",
            why="the system ended it, as when memory runs out" if killed else _last_message(lines),
            fix="close other programs, or give smaller inputs"
            if killed
            else "run with --verbose for its output and report the model",
        )
        error.__dict__["output"] = "\n".join(lines[-200:])
        error.killed = was_killed
        return error


# Idle children by target, environment, folders and network; empty outside `reuse_children`.
_spares: dict[_Key, Child] = {}
_blocks = _of_several = 0  # of `reuse_children` that are open, in all threads; those around several jobs
_reuse = threading.Lock()
_Key = tuple[str, frozenset[tuple[str, str]], tuple[Path, ...] | None, bool]
_of_parent: list[Child] = []  # kept in a copy of its parent, since a Child that is freed removes its folder


@contextlib.contextmanager
def reuse_children(*, several_jobs: bool = False) -> Iterator[None]:
    """Keep borrowed children for reuse: their imports happen once, and stay in memory.

    They end with the last such block, in whichever thread.

    Args:
        several_jobs: whether this block is around several jobs, so that what one needs once is kept, too.
    """
    global _blocks, _of_several
    with _reuse:
        _blocks += 1
        _of_several += several_jobs
    try:
        yield
    finally:
        with _reuse:
            _blocks -= 1
            _of_several -= several_jobs
            ended = [] if _blocks else [_spares.pop(key) for key in list(_spares)]
        for child in ended:
            child.close()


def borrow(
    target: str,
    *,
    purpose: str,
    timeout: float | None = DEFAULT_TIMEOUT,
    patience: str = "",
    preload: Sequence[str] = (),
    environment: Mapping[str, str] = _PLAIN,
    writes: tuple[Path, ...] | None = None,
    offline: bool = False,
    shares: Sequence[str] = (),
) -> Child:
    """Return a Child for `target`, an idle one if there is one; `give_back` returns it.

    Only for code whose bytes do not depend on what its libraries did before; those of coremltools do.
    """
    with _reuse:
        spare = _spares.pop((target, frozenset(environment.items()), writes, offline), None)
    if spare is None:
        return Child(
            target,
            purpose=purpose,
            timeout=timeout,
            patience=patience,
            preload=preload,
            environment=environment,
            writes=writes,
            offline=offline,
            shares=shares,
        )
    spare.lend(purpose, timeout, patience)
    return spare


def give_back(child: Child, *, once_in_a_job: bool = False) -> None:
    """Return a borrowed child: keep it, with a new object, within `reuse_children`; else close it.

    Args:
        once_in_a_job: whether a single job has no further use for it, and needs its memory.
    """
    key = child.target, frozenset(child.environment.items()), child.writes, child.offline
    if _keeps(once_in_a_job) and key not in _spares and child.begin_anew():
        with _reuse:  # meanwhile another thread may have been faster, or ended the last block
            if _keeps(once_in_a_job) and key not in _spares:
                _spares[key] = child
                return
    child.close()


def _keeps(once_in_a_job: bool) -> bool:
    return bool(_of_several if once_in_a_job else _blocks)


def _serve_in_copy(
    settings: Mapping[str, Any], target: str, requests: int, answers: int, preload: Sequence[str]
) -> None:
    """Serve in a copy of this process, whose children are its parent's."""
    from onnxport.core.child_server import serve  # what confines a process has no use in the parent

    global _blocks, _of_several
    _of_parent.extend(_spares.values())
    _spares.clear()
    _blocks = _of_several = 0
    serve(settings, target, requests, answers, preload)


def _environment() -> dict[str, str]:
    """Return the child's environment: it finds this package, and a fixed hash seed makes exports reproducible."""
    import sysconfig

    own = os.environ | {"PYTHONHASHSEED": "0"}
    home = str(Path(__file__).parents[2])
    if home == sysconfig.get_path("purelib"):  # in PYTHONPATH it would precede the standard library
        return own
    places = [os.environ.get("PYTHONPATH", ""), home]
    return own | {"PYTHONPATH": os.pathsep.join(place for place in places if place)}


def _last_message(lines: list[str]) -> str:
    """Return the last line that is no start-up message of a library."""
    starts = ("WARNING: All log", "I0000", "INFO:")
    messages = [line for line in lines if line and not line.startswith(starts)]
    return messages[-1][:300] if messages else "it printed no reason"
