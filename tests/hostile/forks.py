"""The command in a fork of a process that has its imports done: thousands of runs in the time of a hundred.

`python -m tests.hostile.forks` serves: a line of JSON asks for one run, a line answers. Each run has a process of its
own with limits of memory and file size, and ends with all that it started. With `shared`, up to _SHARED runs in a row
have one such process, for a fifth of the time; whoever asks repeats alone what ends badly there.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).parents[2]
# Of one process; the memory is beyond what the imports take. A run that needs more than `peak` may be is a fault; that
# of a reader in a child is refused by the child's own limit of 2 GB.
MEMORY, FILE_SIZE = 2 << 30, 1 << 30
_SHARED = 200


@dataclass(frozen=True)
class Run:
    """How a run ended.

    Attributes:
        code: the exit code; the number of a signal, negated.
        seconds: None if it was ended at its time limit.
        peak: bytes that it held beyond what the imports take.
    """

    code: int
    seconds: float | None
    peak: int
    stdout: str
    stderr: str


class Forks:
    """The server's client.

    Args:
        folder: for temporary files and output of runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(folder),
            "OPENBLAS_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        for name in ("GITHUB_ACTIONS", "ONNXPORT_CACHE"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.hostile.forks", str(folder)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "server.txt").open("wb"),
        )

    def warm(self, place: Path, *arguments: str) -> None:
        """Run a command on valid files in the server itself: later runs share its imports and caches."""
        self._ask({"warm": list(arguments), "folder": str(place)})

    def run(
        self,
        place: Path,
        *arguments: str,
        timeout: float = 30.0,
        environment: Mapping[str, str] | None = None,
        shared: bool = False,
    ) -> Run:
        """Run the command in `place`, with `shared` in a process that had runs before and will have others."""
        asked = {"run": list(arguments), "folder": str(place), "timeout": timeout, "shared": shared}
        answer = self._ask({**asked, "environment": dict(environment or {})})
        stdout, stderr = (
            (self._folder / name).read_bytes().decode(errors="backslashreplace") for name in ("out", "err")
        )
        return Run(answer["code"], answer["seconds"], answer["peak"], stdout, stderr)

    @property
    def process(self) -> int:
        """The server's number."""
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, message: Mapping[str, object]) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, (self._folder / "server.txt").read_text()
        return json.loads(answer)


@contextlib.contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    running = Forks(folder)
    try:
        yield running
    finally:
        running.close()


# ---- the server


def _serve(folder: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, object] = {}
        if worker is not None and not asked.get("shared"):
            worker.end()
            worker = None
        if asked.get("shared"):
            worker = worker or Worker(folder)
            answer = worker.run(asked)
            if not worker.left:
                worker.end()
                worker = None
        elif "warm" in asked:
            _warm(asked)
            gc.collect()
            gc.freeze()  # a collection in a fork would copy all pages
        else:
            answer = _fork(folder, asked)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _warm(asked: Mapping[str, object]) -> None:
    from onnxport.cli.commands import cli

    os.chdir(str(asked["folder"]))
    arguments = [str(each) for each in asked["warm"]]  # type: ignore[attr-defined]
    if arguments[0].startswith(":"):
        code = _called(arguments)
    else:
        code = cli.main(arguments, prog_name="onnxport", standalone_mode=False)
    print(arguments, "ended with", code, file=sys.stderr, flush=True)


def _called(arguments: Sequence[str]) -> int:
    """Call a function of readers.py as a command would, its errors shown in the same way."""
    from onnxport.cli.error_output import show
    from tests.hostile import readers

    try:
        getattr(readers, arguments[0][1:])(*arguments[1:])
        return 0
    except BaseException as error:
        return show(error, json=False, verbose=bool(os.environ.get("HOSTILE_VERBOSE")))


def _fork(folder: Path, asked: Mapping[str, object]) -> dict[str, object]:
    outputs = [os.open(folder / name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) for name in ("out", "err")]
    begun = time.monotonic()
    base = _resident()
    process = os.fork()
    if not process:
        _run(asked, outputs)
    for each in outputs:
        os.close(each)
    is_late = not _wait(process, float(str(asked["timeout"])))
    if is_late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    _, status, used = os.wait4(process, 0)
    code = os.waitstatus_to_exitcode(status)
    seconds = None if is_late else time.monotonic() - begun
    return {"code": code, "seconds": seconds, "peak": max(used.ru_maxrss * 1024 - base, 0)}


class Worker:
    """A fork that runs one command after the other."""

    def __init__(self, folder: Path) -> None:
        self.left = _SHARED
        self._ended: tuple[int, int] | None = None
        self._base = _resident()
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(self._requests)  # so that the end of the server is the end of the requests
            os.close(self._answers)
            _work(folder, os.fdopen(requests), answers)
        os.close(requests)
        os.close(answers)

    def run(self, asked: Mapping[str, object]) -> dict[str, object]:
        begun = time.monotonic()
        self.left -= 1
        os.write(self._requests, json.dumps(asked).encode() + b"\n")
        is_late = not select.select([self._answers], [], [], float(str(asked["timeout"])))[0]
        answer = b"" if is_late else os.read(self._answers, 100)
        seconds = None if is_late else time.monotonic() - begun
        if answer:
            code, peak = map(int, answer.split())
        else:
            code, peak = self.end()
        return {"code": code, "seconds": seconds, "peak": max(peak - self._base, 0)}

    def end(self) -> tuple[int, int]:
        """End the process and all that it started; return the code and the bytes that it held at most."""
        self.left = 0
        if self._ended is not None:
            return self._ended
        if select.select([self._answers], [], [], 0)[0]:  # it has ended
            _, status, used = os.wait4(self._process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            _, status, used = os.wait4(self._process, 0)
        for each in (self._requests, self._answers):
            os.close(each)
        self._ended = os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024
        return self._ended


def _work(folder: Path, requests: IO[str], answers: int) -> NoReturn:
    try:
        environment = dict(os.environ)
        _settle()
        for line in requests:
            asked = json.loads(line)
            for name in ("out", "err"):
                (folder / name).write_bytes(b"")
            os.environ.clear()
            os.environ.update(environment)
            code = _command(
                asked, [os.open(folder / name, os.O_WRONLY | os.O_APPEND) for name in ("out", "err")]
            )
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            os.write(answers, f"{code} {peak}".encode())
    finally:
        os._exit(99)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _data() -> int:
    return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")


def _wait(process: int, seconds: float) -> bool:
    descriptor = os.pidfd_open(process)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _run(asked: Mapping[str, object], outputs: Sequence[int]) -> NoReturn:
    code = 99
    try:
        _settle()
        code = _command(asked, outputs)
    finally:
        os._exit(code)


def _settle() -> None:
    """Begin a process group with limits of its own."""
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    memory = _data() + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.root.handlers.clear()  # of tools that other formats had imported


def _command(asked: Mapping[str, object], outputs: Sequence[int]) -> int:
    """Run a command or a reader with its output into `outputs`, and return its exit code."""
    for number, output in enumerate(outputs, start=1):
        os.dup2(output, number)
        os.close(output)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    code = 99
    try:
        os.chdir(str(asked["folder"]))
        os.environ.update(asked["environment"])  # type: ignore[call-overload]
        arguments = [str(each) for each in asked["run"]]  # type: ignore[attr-defined]
        if arguments[0].startswith(":"):
            code = _called(arguments)
        elif asked["shared"]:
            from onnxport.cli.commands import cli

            code = cli.main(arguments, prog_name="onnxport", standalone_mode=False)
        else:
            from onnxport.cli import main

            sys.argv = ["onnxport", *arguments]
            main()
    except BaseException:
        import traceback

        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return code


if __name__ == "__main__":
    tempfile.tempdir = None
    _serve(Path(sys.argv[1]))
