"""The environment with paddle2onnx and PaddlePaddle: one converts there, the other answers.

paddle2onnx pins an old onnx, and both litter the model's folder. So they run out of process on a copy.
"""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from onnxport.core import environments
from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, InputError, MachineError, MissingDependencyError
from onnxport.runtimes.base import RunError

HOW_TO_GET = (
    "make an environment for it: python3 -m venv paddle-env && "
    "paddle-env/bin/pip install paddlepaddle paddle2onnx packaging, then give --paddle2onnx paddle-env/bin/paddle2onnx"
)
# Seconds. It takes 8 on models of 10 MB, most of them for its imports.
TIME_LIMIT = 900.0
_OLDEST, _NEWEST = 11, 16  # opsets that it is asked for; beyond, ours go further
_HEADER = struct.Struct("<Q")
_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Program:
    """The files of a model."""

    graph: Path
    weights: Path


@dataclass(frozen=True)
class Environment:
    """An installed paddle2onnx, by its command, with PaddlePaddle beside it."""

    command: Path

    @classmethod
    def find(cls, given: Path | None) -> Self:
        """Return the environment that the user names, else the one on PATH; MissingDependencyError if there is none."""
        found = shutil.which(os.fspath(given or "paddle2onnx"))
        if found is None:
            what = f"{given} is not a command that can be run" if given else "paddle2onnx is not on PATH"
            raise MissingDependencyError(what, fix=HOW_TO_GET)
        command = Path(found).absolute()  # not resolved: an environment's commands may be links out of it
        if not command.with_name("python").exists():
            raise MissingDependencyError(f"{command} has no python beside it", fix=HOW_TO_GET)
        return cls(command)

    @cached_property
    def version(self) -> str:
        return environments.version_of(self.command, "paddle2onnx")

    def convert(self, program: Program, folder: Path, opset: int | None) -> Path:
        """Convert a program in `folder` with paddle2onnx.

        Raises:
            CannotConvertError: it gives up, or writes nothing.
            MachineError: it crashed or took longer than the limit.
        """
        output = folder / "model.onnx"
        command = [os.fspath(self.command), "--model_dir", ".", "--model_filename", program.graph.name]
        command += ["--params_filename", program.weights.name, "--save_file", output.name]
        asked = min(max(opset or _NEWEST, _OLDEST), _NEWEST)
        command += ["--opset_version", str(asked)]
        if not self.version.startswith("1."):
            command += ["--optimize_tool", "None"]  # what it wrote is what is looked at
        with (folder / "said").open("wb") as said:
            environment = environments.environment_of(self.command, folder)
            code = environments.run(command, folder, environment, said.fileno(), limit=TIME_LIMIT)
        text = (folder / "said").read_text(encoding="utf-8", errors="replace")
        if "ModuleNotFoundError" in text:
            raise MissingDependencyError(
                f"{self.command} does not run: {environments.error_line(text)}", fix=HOW_TO_GET
            )
        if code < 0:
            cause = f"signal {signal.Signals(-code).name}"
            raise MachineError(
                f"paddle2onnx crashed on {program.graph.name} ({cause})", why=environments.error_line(text)
            )
        if code or not output.is_file():
            why = environments.error_line(text) if code else "it says success and writes no file"
            raise CannotConvertError(
                f"paddle2onnx {self.version} cannot convert {program.graph.name}", why=why
            )
        return output


class Worker:
    """worker.py in the environment's Python; it ends when this process closes its pipe, and removes `folder` then."""

    def __init__(self, environment: Environment, program: Program, folder: Path) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as the process
        python = os.fspath(environment.command.with_name("python"))
        older = {"FLAGS_enable_pir_api": "0"} if program.graph.suffix == ".pdmodel" else {}
        try:
            self._process = subprocess.Popen(
                # -I: this package's folder is none of that Python's.
                [
                    python,
                    "-I",
                    "-W",
                    "ignore",
                    *map(os.fspath, (_WORKER, program.graph, program.weights, folder)),
                ],
                env=environments.environment_of(environment.command, folder) | older,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
            )
        except OSError as error:
            raise MachineError(f"{python} could not be started", why=str(error)) from error
        self.described = self._describe()

    def _describe(self) -> dict[str, Any]:
        said, _ = self._asked({"method": "describe"}, ())
        error = said.get("error", "")
        if error.startswith(("ModuleNotFoundError", "ImportError")):
            raise MissingDependencyError(
                f"paddle2onnx's environment lacks PaddlePaddle ({error})", fix=HOW_TO_GET
            )
        if error:
            raise InputError("PaddlePaddle cannot load the model", why=" ".join(error.split())[:300])
        return said

    def run(self, arrays: Sequence[Array], *, other: bool) -> list[Array]:
        """Return the outputs in order; raise RunError where PaddlePaddle refuses the inputs."""
        said, answers = self._asked({"method": "run", "other": other}, arrays)
        if "error" in said:
            raise RunError("PaddlePaddle refuses these inputs", why=environments.error_line(said["error"]))
        return answers

    def _asked(self, request: dict[str, Any], arrays: Sequence[Array]) -> tuple[dict[str, Any], list[Array]]:
        held = io.BytesIO()
        named: dict[str, Any] = {str(number): array for number, array in enumerate(arrays)}
        np.savez(held, **named)
        assert self._process.stdin is not None
        try:
            for frame in (json.dumps(request).encode(), held.getvalue()):
                self._process.stdin.write(_HEADER.pack(len(frame)) + frame)
            self._process.stdin.flush()
            said, answers = json.loads(self._frame()), self._frame()
        except (BrokenPipeError, EOFError):
            raise self._crashed() from None
        with np.load(io.BytesIO(answers)) as archive:
            return said, [archive[str(number)] for number in range(len(archive.files))]

    def _frame(self) -> bytes:
        (length,) = _HEADER.unpack(self._read(_HEADER.size))
        return self._read(length)

    def _read(self, length: int) -> bytes:
        assert self._process.stdout is not None
        pipe, parts = self._process.stdout.fileno(), []
        while length:
            if not select.select([pipe], [], [], TIME_LIMIT)[0]:
                self._process.kill()
                raise MachineError("PaddlePaddle hung", why=f"no answer within {TIME_LIMIT:g} s")
            parts.append(os.read(pipe, min(length, 1 << 20)))
            if not parts[-1]:
                raise EOFError
            length -= len(parts[-1])
        return b"".join(parts)

    def _crashed(self) -> MachineError:
        code = self._process.wait()
        self._said.seek(0)
        text = self._said.read().decode(errors="replace")
        if "ModuleNotFoundError" in text:
            return MissingDependencyError(  # type: ignore[return-value]
                f"paddle2onnx's environment lacks a library: {environments.error_line(text)}", fix=HOW_TO_GET
            )
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return MachineError(f"PaddlePaddle crashed ({cause})", why=environments.error_line(text))
