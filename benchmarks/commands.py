"""Run whole commands in fresh processes and time them."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peak import Peak

# A tool that takes longer has failed; onnx2tf's tf_converter takes more, and 16 GB, for the largest models.
TIMEOUT = 600.0


@dataclass(frozen=True)
class Run:
    """The result of a command.

    Attributes:
        seconds: wall time.
        cpu_seconds: processor time of the command and of what it started; it suffers less from a busy machine.
        made: whether it ended well and left the file that it was asked for.
        said: the end of what it printed, if it did not.
        peak: the most memory that it and what it started held at one time, in MB; 0 where the system does not tell.
    """

    seconds: float
    cpu_seconds: float
    made: bool
    said: str = ""
    peak: float = 0.0


def run_command(
    command: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Run:
    """Runs a command. Its output goes to a file: nobody has to read that while the clock runs."""
    code: int | None = None
    with tempfile.TemporaryFile() as output:
        used, start = _children_used(), time.perf_counter()
        with (
            subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
            Peak(process.pid) as peak,
        ):
            try:
                code = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
        seconds, cpu_seconds = time.perf_counter() - start, _children_used() - used
        output.seek(0)
        said = "" if code == 0 else _telling_line(output.read().decode(errors="replace"))
    if code is None:
        said = f"not ready after {TIMEOUT:.0f} s: {said}"
    elif code:
        said = f"exit {code}: {said}"
    return Run(seconds, cpu_seconds, code == 0, said, peak.megabytes)


def with_bytecode() -> dict[str, str]:
    """Return the environment of an installed package, whose modules are compiled from its first run on."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), "onnxport-bytecode"))}


def _children_used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _telling_line(output: str) -> str:
    """The last line that names an error, the last one if none does."""
    lines = [line for line in output.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or line.startswith("error:")]
    return " ".join((named or lines or ["it said nothing"])[-1].split())[:200]
