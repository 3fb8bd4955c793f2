"""Run onnxsim's emitters in an environment with their requirements: TensorFlow for TFLite, or coremltools."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from benchmarks.commands import Run, run_command
from benchmarks.onnx2tf import PeerMissing

# What it emits -> the library that it does it with.
LIBRARIES = {"tflite": "tensorflow", "coreml": "coremltools"}
_SUFFIXES = {"tflite": ".tflite", "coreml": ".mlpackage"}
_ASK = "import importlib.metadata as m; print(m.version('onnxsim'), m.version('{}'))"


@dataclass(frozen=True)
class Onnxsim:
    """An installed onnxsim: its command, what it is to emit, its version and that of the library behind it."""

    command: Path
    versions: Mapping[str, str]
    emits: str = "tflite"

    @classmethod
    def find(cls, python: Path, emits: str = "tflite") -> Self:
        """The one that is installed beside a Python interpreter.

        Raises:
            PeerMissing: there is none, or not the library that it needs.
        """
        try:
            ask = [python, "-c", _ASK.format(LIBRARIES[emits])]
            answer = subprocess.run(ask, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PeerMissing(f"{python} has no onnxsim with {LIBRARIES[emits]}: {error}") from error
        onnxsim, library = answer.stdout.split()
        command = python.absolute().with_name("onnxsim")
        return cls(command, {"onnxsim": onnxsim, LIBRARIES[emits]: library}, emits)

    def convert(self, model: Path, shapes: Mapping[str, tuple[int, ...]], layout: str, artefact: Path) -> Run:
        """Converts a copy of `model` to `artefact`; copying is not timed."""
        with tempfile.TemporaryDirectory(prefix="onnxsim-") as temp:
            shutil.copyfile(model, Path(temp, "model.onnx"))
            made = f"made{_SUFFIXES[self.emits]}"
            command = [os.fspath(self.command), "model.onnx", "simple.onnx", f"--emit-{self.emits}", made]
            if layout == "nhwc":
                command += ["--tflite-layout", "nhwc"]
            if shapes:
                command.append("--overwrite-input-shape")
                command += [f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items()]
            ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            environment = ours | {"PATH": f"{self.command.parent}{os.pathsep}{ours['PATH']}", "TMPDIR": temp}
            run = run_command(command, cwd=Path(temp), environment=environment)
            written = Path(temp, made)
            if run.made and not written.exists():
                return replace(run, made=False, said="exit 0, but no file")
            if run.made:
                artefact.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(written, artefact)
            return run
