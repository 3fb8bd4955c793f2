"""The second route: onnx2tf, another converter, in an environment of its own that the user names or that is on PATH.

It pins 17 packages and needs a newer Python than we do, rewrites the file that it is given and litters the current
directory. So it runs out of process, without our Python's settings, on a copy of the model in a fresh folder.
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
from onnxport.converters.tflite.result import Compiled
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
# Seconds. It takes 5 to 60 on models of 1 to 100 MB.
TIME_LIMIT = 900.0
_WRITTEN = "out/model_float32.tflite"


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
        if shutil.which("onnxsim", path=environments.search_path(command)) is None:
            # Without it onnx2tf goes on, says success, and writes operators that no runtime knows.
            raise MissingDependencyError(f"{command} has no onnxsim beside it", fix=HOW_TO_GET)
        return cls(command)

    @cached_property
    def version(self) -> str:
        """Its version, "unknown" where the command lies in no environment of Python's."""
        return environments.version_of(self.command, "onnx2tf")

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
            environment = environments.environment_of(self.command, folder)
            code = environments.exit_code(
                command,
                folder,
                environment,
                said.fileno(),
                limit=TIME_LIMIT,
                fix="convert with --route direct",
            )
        text = (folder / "said").read_text(encoding="utf-8", errors="replace")
        if code < 0:
            cause = f"signal {signal.Signals(-code).name}"
            raise MachineError(
                f"onnx2tf crashed on {model.path} ({cause})", why=environments.telling_line(text)
            )
        if code or not (folder / _WRITTEN).is_file():
            why = environments.telling_line(text) if code else "it says success and writes no file"
            raise CannotConvertError(f"onnx2tf cannot convert {model.path}", why=why)


def _pinned(model: Model, params: TfliteParams) -> Model:
    from onnxport.optimizers import shape_inference

    copy = model.clone()
    if params.shape:
        shape_inference.pin_inputs(copy, params.shape)
        shape_inference.drop_declared(copy)
        shape_inference.infer(copy)
    return copy
