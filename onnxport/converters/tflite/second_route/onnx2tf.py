"""The second route: onnx2tf, another converter, in an environment of its own that the user names or that is on PATH.

It pins 17 packages and needs a newer Python than we do, rewrites the file that it is given and litters the current
directory. So it runs out of process, without our Python's settings, on a copy of the model in a fresh folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite.compiled import Compiled
from onnxport.errors import CannotConvertError, MachineError, MissingDependencyError
from onnxport.isolation import Child
from onnxport.manifest import Manifest

if TYPE_CHECKING:
    from onnxport.model import Model

HOW_TO_GET = (
    "make an environment for it: python3.12 -m venv onnx2tf-env && onnx2tf-env/bin/pip install onnx2tf, "
    "then give --onnx2tf onnx2tf-env/bin/onnx2tf"
)
# Seconds. It takes 5 to 60 on models of 1 to 100 MB.
TIME_LIMIT = 900.0
_WRITTEN = "out/model_float32.tflite"
_ASK_VERSION = "import importlib.metadata as m; print(m.version('onnx2tf'))"


@dataclass(frozen=True)
class Onnx2tf:
    """An installed onnx2tf, by its command."""

    command: Path

    @classmethod
    def find(cls, given: Path | None) -> Self:
        """The one that the user names, else the one on PATH.

        Raises:
            MissingDependencyError: there is none, or it lacks onnxsim.
        """
        found = shutil.which(os.fspath(given or "onnx2tf"))
        if found is None:
            what = f"{given} is no command that can be run" if given else "onnx2tf is not on PATH"
            raise MissingDependencyError(what, fix=HOW_TO_GET)
        command = Path(found).absolute()  # not resolved: an environment's commands may be links out of it
        if shutil.which("onnxsim", path=_path(command)) is None:
            # Without it onnx2tf goes on, says success, and writes operators that no runtime knows.
            raise MissingDependencyError(f"{command} has no onnxsim beside it", fix=HOW_TO_GET)
        return cls(command)

    @cached_property
    def version(self) -> str:
        """Its version, "unknown" where the command lies in no environment of Python's."""
        python = self.command.with_name("python")
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run(
                [python, "-c", _ASK_VERSION], capture_output=True, timeout=60, env=self._environment()
            )
            if asked.returncode == 0:
                return asked.stdout.decode().strip()
        return "unknown"

    def convert(self, model: Model, output: Path, params: TfliteParams, manifest: Manifest) -> Compiled:
        """Has onnx2tf convert a copy of `model` to `output`, which gets our manifest as if we had made it.

        Raises:
            CannotConvertError: it gives up, or what it writes is of no use.
            MachineError: it crashed or took longer than the limit.
        """
        with tempfile.TemporaryDirectory(prefix="onnx2tf-", dir=output.parent) as temp:
            folder = Path(temp)
            source = _pinned(model, params).save(folder / "model.onnx").path
            # Onnx2tf rewrites what it is given; what the artefact is held against afterwards must be the original.
            original = _pinned(model, params).save(folder / "original.onnx").path
            self._run(source, model, params, folder)
            named = replace(manifest, made_by={**manifest.made_by, "onnx2tf": self.version})
            with Child(
                "onnxport.converters.tflite.second_route.adoption:Adopter", purpose="the LiteRT interpreter"
            ) as adopter:
                compiled: Compiled = adopter.call("adopt", original, folder / _WRITTEN, output, named)
        return compiled

    def _run(self, source: Path, model: Model, params: TfliteParams, folder: Path) -> None:
        command = [os.fspath(self.command), "-i", source.name, "-o", "out", "-coion", "-n"]
        if params.layout == "keep":
            command += ["-kat", *(spec.name for spec in model.inputs)]
        with (folder / "said").open("wb") as said:
            code = _waited_for(command, folder, self._environment(folder), said.fileno())
        text = (folder / "said").read_text(encoding="utf-8", errors="replace")
        if code < 0:
            cause = f"signal {signal.Signals(-code).name}"
            raise MachineError(f"onnx2tf crashed on {model.path} ({cause})", why=_telling_line(text))
        if code or not (folder / _WRITTEN).is_file():
            why = _telling_line(text) if code else "it says success and writes no file"
            raise CannotConvertError(f"onnx2tf cannot convert {model.path}", why=why)

    def _environment(self, folder: Path | None = None) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        places = {} if folder is None else {"TMPDIR": os.fspath(folder)}
        return ours | {"PATH": _path(self.command)} | places


def _path(command: Path) -> str:
    """PATH with the command's own folder first: it calls onnxsim, which is installed beside it."""
    return f"{command.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def _pinned(model: Model, params: TfliteParams) -> Model:
    from onnxport.optimizers import shapes

    copy = model.clone()
    if params.shape:
        shapes.pin_inputs(copy, params.shape)
        shapes.drop_declared(copy)
        shapes.infer(copy)
    return copy


def _waited_for(command: list[str], folder: Path, environment: Mapping[str, str], said: int) -> int:
    """The exit code; ends the command and all that it started when time is up or we are interrupted.

    Raises:
        MachineError: it could not be started, or took too long.
    """
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
        return process.wait(TIME_LIMIT)
    except subprocess.TimeoutExpired:
        why = f"it did not end within {TIME_LIMIT:g} s"
        raise MachineError("onnx2tf hung", why=why, fix="convert with --route direct") from None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its children, which a signal to it alone would leave behind."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _telling_line(text: str) -> str:
    """The last line that names an error, the last one if none does."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or line.lower().startswith("error")]
    return " ".join((named or lines or ["it says nothing"])[-1].split())[:200]
