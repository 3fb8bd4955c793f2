"""Start a child process as a copy of this one, which has the libraries loaded that the child needs.

An import of NumPy and onnx takes a child 0.2 s, and 25 MB that a copy shares with its parent until one of them changes
it. Only on Linux, and only in processes of ours, whose threads are known: in a copy, a lock that another thread held
stays locked. What `allow` finds are threads that wait for the system and hold no lock. OpenBLAS, which NumPy loads,
ends its threads before a copy is made, and starts them again at their next use
(https://github.com/OpenMathLib/OpenBLAS, driver/others/blas_server.c).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

_THREADS = "/proc/self/task"
_DESCRIPTORS = "/proc/self/fd"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KILLED = 9  # signal.SIGKILL, which Windows does not have
# Bytes without mapped files that a process to be copied may hold: they count for its copy, too, and limits of a model's
# memory are as low as 300 MB. The libraries take 80 MB, a model that is loaded already may take much.
_MOST = 128 * 2**20

# Threads that a copy may be made beside; empty where this process is a user's, or the system is not Linux.
_known: set[str] = set()


def allow(threads: int) -> None:
    """Let this process be copied: it is ours, and its threads hold no locks. To be called before others start.

    Args:
        threads: that are ours, the main one among them. With more this process is not copied: QEMU's user mode
            emulation has one, as in containers for another machine, and fails in a copy ("rcu_read_unlock: Assertion").
    """
    if sys.platform == "linux":
        found = os.listdir(_THREADS)
        _known.clear()
        _known.update(found if len(found) == threads else ())


def load(modules: Iterable[str], memory: int) -> bool:
    """Import `modules` if this process can be copied, and return whether it can.

    Args:
        memory: bytes that the copy may hold.
    """
    if not _can_be_copied(min(_MOST, memory // 4)) or _mapped() > memory // 2:
        return False
    for module in modules:
        importlib.import_module(module)
    _known.update(os.listdir(_THREADS))  # OpenBLAS's
    return True


def _can_be_copied(most: int) -> bool:
    """Return whether all threads are known, this is the main one, which the copy has, and memory is at most `most`."""
    if not _known or threading.current_thread() is not threading.main_thread():
        return False
    return _known.issuperset(os.listdir(_THREADS)) and _held() <= most


def _held() -> int:
    """Return the bytes that this process holds, without mapped files."""
    with open("/proc/self/statm") as file:
        resident, of_files = map(int, file.read().split()[1:3])
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def _mapped() -> int:
    """Return the bytes that this process may write to, used or not: the system limits these (RLIMIT_DATA).

    In a copy with less, a thread would end before it begins, and whoever starts it wait forever.
    """
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")


class Copy:
    """A copy of this process that runs `work` and ends; it answers as `subprocess.Popen` does.

    Args:
        work: called in the copy; to return ends it.
        environment: the copy's variables.
        output: a descriptor for its standard output and error; its input is empty.
        kept: the other descriptors that it keeps open.

    Raises:
        OSError: the system cannot start another process.
    """

    def __init__(
        self, work: Callable[[], None], environment: Mapping[str, str], output: int, kept: Iterable[int]
    ) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        gc.freeze()  # a collection writes to all objects, and so would copy the pages of the libraries
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: there are other threads
                self.pid = os.fork()
            if not self.pid:
                _run(work, environment, output, set(kept), blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            gc.unfreeze()  # in the parent, where models come and go

    def poll(self) -> int | None:
        """Return the exit code, or minus the number of the signal that ended the copy; None while it runs."""
        if self._lock.acquire(blocking=False):  # else another thread waits for the end
            try:
                self._ask(os.WNOHANG)
            finally:
                self._lock.release()
        return self.returncode

    def wait(self) -> int:
        """Wait for the copy's end; see `poll`."""
        with self._lock:
            self._ask(0)
        assert self.returncode is not None, "the system waits without WNOHANG"
        return self.returncode

    def kill(self) -> None:
        """End the copy by force, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, _KILLED)

    def _ask(self, options: int) -> None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)


def _run(
    work: Callable[[], None], environment: Mapping[str, str], output: int, kept: set[int], blocked: set[int]
) -> NoReturn:
    """Become the child: nothing of the parent's is unwound, closed or flushed by Python's means here."""
    import tempfile

    code = 1
    try:
        os.setsid()  # Ctrl-C reaches the parent alone
        _redirect(output, kept)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.unraisablehook = sys.__unraisablehook__
        os.environ.clear()
        os.environ.update(environment)
        _forget_current_folder()
        tempfile.tempdir = None  # TMPDIR may be another
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _forget_current_folder() -> None:
    """Import nothing from the folder of `python -m onnxport`: a numpy.py there must not replace the library."""
    here = os.getcwd()
    if here not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        sys.path[:] = [place for place in sys.path if place not in ("", here)]


def _redirect(output: int, kept: set[int]) -> None:
    """Connect the standard streams, and close what the copy inherited but does not need, such as locks and pipes."""
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in map(int, os.listdir(_DESCRIPTORS)):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the list's own
                os.close(descriptor)
