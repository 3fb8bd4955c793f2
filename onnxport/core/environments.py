"""Run commands of other Python environments, for tools that pin versions of our libraries."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxport.core.errors import MachineError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def search_path(command: Path) -> str:
    """Return PATH with the command's folder first: programs that it calls are installed beside it."""
    return f"{command.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def environment_of(command: Path, folder: Path | None = None) -> dict[str, str]:
    """Return this process's environment for another Python, with temporary files in `folder`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    places = {} if folder is None else {"TMPDIR": os.fspath(folder)}
    return ours | {"PATH": search_path(command)} | places


def version_of(command: Path, distribution: str) -> str:
    """Return the version of a distribution installed beside `command`; "unknown" outside a Python environment."""
    ask = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        python = command.with_name("python")
        done = subprocess.run(
            [python, "-c", ask], capture_output=True, timeout=60, env=environment_of(command)
        )
        if done.returncode == 0:
            return done.stdout.decode().strip()
    return "unknown"


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: int,
    *,
    limit: float,
    fix: str = "",
) -> int:
    """Run a command and return its exit code; on a timeout or an interruption, end it and its children.

    Args:
        output: descriptor for its stdout and stderr.
        limit: seconds.
        fix: remedy for a hang, for the error.

    Raises:
        MachineError: it could not be started, or took too long.
    """
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        raise MachineError(f"{command[0]} could not be started", why=error.strerror or str(error)) from error
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        raise MachineError(f"{name} hung", why=f"it did not end within {limit:g} s", fix=fix) from None
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def error_line(text: str) -> str:
    """Return the last line that names an error, or the last line."""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "[ERROR]" in line or line[:5].lower() == "error"]
    return " ".join((named or lines or ["it printed no reason"])[-1].split())[:200]
