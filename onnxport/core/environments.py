"""Commands of other environments: tools that pin what we use run there, without our Python's settings."""

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
    """PATH with the command's own folder first: what it calls is installed beside it."""
    return f"{command.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def environment_of(command: Path, folder: Path | None = None) -> dict[str, str]:
    """This process's environment as another Python is to see it, with temporary files in `folder`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    places = {} if folder is None else {"TMPDIR": os.fspath(folder)}
    return ours | {"PATH": search_path(command)} | places


def version_of(command: Path, distribution: str) -> str:
    """The version of what is installed beside `command`, "unknown" where that lies in no environment of Python's."""
    ask = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        python = command.with_name("python")
        asked = subprocess.run(
            [python, "-c", ask], capture_output=True, timeout=60, env=environment_of(command)
        )
        if asked.returncode == 0:
            return asked.stdout.decode().strip()
    return "unknown"


def exit_code(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    said: int,
    *,
    limit: float,
    fix: str = "",
) -> int:
    """The exit code; ends the command and all that it started when time is up or we are interrupted.

    Args:
        said: the descriptor that takes what it prints.
        limit: seconds.
        fix: what to do about one that hangs.

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
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    except OSError as error:
        raise MachineError(f"{command[0]} could not be started", why=error.strerror or str(error)) from error
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        raise MachineError(f"{name} hung", why=f"it did not end within {limit:g} s", fix=fix) from None
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its children, which a signal to it alone would leave behind."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def telling_line(text: str) -> str:
    """The last line that names an error, the last one if none does."""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    named = [
        line for line in lines if "Error" in line or "[ERROR]" in line or line.lower().startswith("error")
    ]
    return " ".join((named or lines or ["it says nothing"])[-1].split())[:200]
