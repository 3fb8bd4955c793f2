"""The contract of a device: a shell command runs there, and files are brought there."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from onnxport.core.errors import MachineError, MissingDependencyError, printable
from onnxport.core.resources import Closing

_SECONDS = 60  # for a command that only looks or moves
_SLOWEST = 250_000  # bytes a second of a connection that still works
_KILLED = 124  # the exit code of a command that was ended


class Answer(NamedTuple):
    """The text of both streams of a command, and its exit code."""

    code: int
    output: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return printable(lines[-1])[:300] if lines else ""


class Device(Closing):
    """A folder on another machine, which goes when the device is closed.

    A kind of device has the program that reaches it, the place of the folder, and two methods.
    """

    scheme: ClassVar[str]
    program: ClassVar[str]
    install: ClassVar[str]  # how the user gets the program
    hint: ClassVar[str]  # what to try if the device does not answer
    place: ClassVar[str]  # a folder for temporary files, in the device's shell

    def __init__(self, name: str) -> None:
        self.name, self.title, self.folder = name, f"{self.scheme}:{name}", ""
        if shutil.which(self.program) is None:
            raise MissingDependencyError(f"{self.title} needs {self.program}", fix=self.install)
        made = self.run(f'mktemp -d "{self.place}/onnxport-XXXXXX"')
        lines = made.output.split()
        if made.code or not lines or not lines[-1].startswith("/"):
            why = made.last_line or f"{self.program} ended with {made.code}"
            raise MissingDependencyError(f"{self.title} does not answer", why=why, fix=self.hint)
        self.folder = lines[-1]
        self._parents = {self.folder}

    @abstractmethod
    def shell(self, command: str) -> list[str]:
        """Return the words of the local program that runs a command in the device's shell."""

    @abstractmethod
    def send(self, file: Path, place: str, seconds: float) -> Answer:
        """Copy a file to a path on the device."""

    def run(self, command: str, *, seconds: float = _SECONDS) -> Answer:
        """Run a command of the POSIX shell; one that takes longer is ended, and its code is 124."""
        return self.call(self.shell(f"sh -c {shlex.quote(command)}"), seconds)

    def push(self, file: Path, name: str) -> str:
        """Copy a file into the folder under a relative name; return its path there (MachineError)."""
        place = f"{self.folder}/{name}"
        parent = place.rpartition("/")[0]
        if parent not in self._parents:
            self._parents.add(parent)
            self.run(f"mkdir -p {shlex.quote(parent)}")
        sent = self.send(file, place, _SECONDS + file.stat().st_size / _SLOWEST)
        if sent.code:
            raise MachineError(f"{file} cannot be copied to {self.title}", why=sent.last_line)
        return place

    def start(self, words: Sequence[str], *, seconds: float) -> Answer:
        """Run a program of the folder, with the libraries beside it; what takes longer is ended there, too."""
        folder, program = shlex.quote(self.folder), shlex.join(words)
        libraries = shlex.quote(words[0].rpartition("/")[0])
        command = (
            f"cd {folder} && echo $$ > pid && export LD_LIBRARY_PATH={libraries} DYLD_LIBRARY_PATH={libraries} && "
            f"exec {program}"
        )
        code = _KILLED  # as after Ctrl-C
        try:
            ran = self.run(command, seconds=seconds)
            code = ran.code
        finally:
            if code == _KILLED:
                self.run(f"kill -9 $(cat {folder}/pid) 2>/dev/null")
        return ran

    def close(self) -> None:
        """Remove the folder."""
        folder, self.folder = self.folder, ""
        if folder:
            with contextlib.suppress(OSError):
                self.run(f"rm -rf {shlex.quote(folder)}", seconds=20)

    def call(self, words: Sequence[str], seconds: float, file: Path | None = None) -> Answer:
        """Run a local program, with `file` as its input; return what it printed."""
        with contextlib.ExitStack() as stack:
            source = subprocess.DEVNULL if file is None else stack.enter_context(file.open("rb"))
            try:
                ran = subprocess.run(
                    words,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired as late:
                return Answer(_KILLED, (late.stdout or b"").decode(errors="replace"))
            except OSError as error:
                return Answer(127, error.strerror or str(error))
        return Answer(ran.returncode, ran.stdout.decode(errors="replace"))
