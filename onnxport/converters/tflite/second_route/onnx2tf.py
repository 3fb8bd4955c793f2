"""The second route: onnx2tf, another converter, in its own environment, given by the user or found on PATH.

It pins 17 packages, needs a newer Python than we do, rewrites its input and writes into the current directory. So it
runs out of process, without our Python's settings, on a copy of the model in a fresh folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from onnxport.converters.params import TfliteParams
from onnxport.converters.result import Compiled
from onnxport.core import environments
from onnxport.core.child_process import Child
from onnxport.core.errors import CannotConvertError, MachineError, MissingDependencyError
from onnxport.formats.manifest import Manifest

if TYPE_CHECKING:
    from onnxport.formats.model import Model

HOW_TO_GET = (
    "make an environment for it: python3.12 -m venv onnx2tf-env && onnx2tf-env/bin/pip install onnx2tf, "
    "then give --onnx2tf onnx2tf-env/bin/onnx2tf"
)
# Seconds; models of 1 to 100 MB take 5 to 60.
TIME_LIMIT = 900.0
_WRITTEN = "out/model_float32.tflite"
_MATCHER = "onnxport.converters.tflite.second_route.port_matching:Matcher"


@dataclass(frozen=True)
class Onnx2tf:
    """An installed onnx2tf, by its command."""

    command: Path

    @classmethod
    def find(cls, given: Path | None) -> Self:
        """Return the command that the user gives, else the one on PATH.

        Raises:
            MissingDependencyError: no such command, or it lacks onnxsim.
        """
        found = shutil.which(os.fspath(given or "onnx2tf"))
        if found is None:
            what = f"{given} is not an executable command" if given else "onnx2tf is not on PATH"
            raise MissingDependencyError(what, fix=HOW_TO_GET)
        command = Path(found).absolute()  # not resolved: an environment's commands may be links out of it
        if shutil.which("onnxsim", path=environments.search_path(command)) is None:
            # Without it onnx2tf exits with 0 and writes operators that no runtime knows.
            raise MissingDependencyError(f"{command} has no onnxsim beside it", fix=HOW_TO_GET)
        return cls(command)

    @cached_property
    def version(self) -> str:
        """Its version, "unknown" if the command is in no Python environment."""
        return environments.version_of(self.command, "onnx2tf")

    def convert(self, model: Model, output: Path, params: TfliteParams, manifest: Manifest) -> Compiled:
        """Convert a copy of `model` to `output` with onnx2tf, and add our manifest.

        Raises:
            CannotConvertError: onnx2tf fails, or its file is unusable.
            MachineError: it crashed or exceeded the time limit.
        """
        with tempfile.TemporaryDirectory(prefix="onnx2tf-", dir=output.parent) as temp:
            folder = Path(temp)
            source = _pin_shapes(model, params).save(folder / "model.onnx").path
            # onnx2tf rewrites its input; the artefact is compared with the original.
            original = _pin_shapes(model, params).save(folder / "original.onnx").path
            self._run(source, model, params, folder)
            named = replace(manifest, made_by={**manifest.made_by, "onnx2tf": self.version})
            with Child(_MATCHER, purpose="the LiteRT interpreter") as matcher:
                compiled: Compiled = matcher.call("match", original, folder / _WRITTEN, output, named)
        return compiled

    def _run(self, source: Path, model: Model, params: TfliteParams, folder: Path) -> None:
        command = [os.fspath(self.command), "-i", source.name, "-o", "out", "-coion", "-n"]
        if params.layout == "keep":
            command += ["-kat", *(spec.name for spec in model.inputs)]
        log = folder / "log"
        with log.open("wb") as stream:
            environment, fix = (
                environments.environment_of(self.command, folder),
                "convert with --route direct",
            )
            code = environments.run(command, folder, environment, stream.fileno(), limit=TIME_LIMIT, fix=fix)
        text = log.read_text(encoding="utf-8", errors="replace")
        if code < 0:
            what = f"onnx2tf crashed on {model.path} (signal {signal.Signals(-code).name})"
            raise MachineError(what, why=environments.error_line(text))
        if code or not (folder / _WRITTEN).is_file():
            why = environments.error_line(text) if code else "it exits with 0 and writes no file"
            raise CannotConvertError(f"onnx2tf cannot convert {model.path}", why=why)


def _pin_shapes(model: Model, params: TfliteParams) -> Model:
    from onnxport.optimizers import shape_inference

    copy = model.clone()
    if params.shape:
        shape_inference.pin_inputs(copy, params.shape)
        shape_inference.drop_declared(copy)
        shape_inference.infer(copy)
    return copy
