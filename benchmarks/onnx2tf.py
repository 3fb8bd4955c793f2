"""Run onnx2tf in its own environment: it pins 17 packages and needs Python 3.12.

onnx2tf rewrites its input file (it runs onnxsim on it up to three times) and leaves files in the current directory, so
that every run gets a copy of the model in a fresh folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from benchmarks.commands import Run, run_command

# Its --tflite_backend: the default one writes the file by itself, the other goes through TensorFlow.
BACKENDS = ("flatbuffer_direct", "tf_converter")

HOW_TO_MAKE_ONE = """\
  python3.12 -m venv onnx2tf-env
  onnx2tf-env/bin/pip install 'onnx2tf[tensorflow]'    # 2.7 GB; without [tensorflow] its default backend only
  python -m benchmarks.convert --onnx2tf-python onnx2tf-env/bin/python"""

_PACKAGES = ("onnx2tf", "onnxsim", "onnx", "onnxruntime", "numpy", "ai-edge-litert", "tensorflow", "tf-keras")
_ASK = f"""
import importlib.metadata, json, platform
versions = {{"Python": platform.python_version()}}
for name in {_PACKAGES!r}:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""


class PeerMissing(RuntimeError):
    """There is no onnx2tf to compare with; the text says how to get one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}\nonnx2tf needs an environment of its own, with Python 3.12 or newer:\n{HOW_TO_MAKE_ONE}"
        )


@dataclass(frozen=True)
class Onnx2tf:
    """An installed onnx2tf.

    Attributes:
        command: its command.
        versions: Python and packages that matter, name to version.
    """

    command: Path
    versions: Mapping[str, str]

    @classmethod
    def find(cls, python: Path | None) -> Self:
        """The one that is installed beside a Python interpreter.

        Raises:
            PeerMissing: no interpreter given, or one without onnx2tf and onnxsim.
        """
        if python is None:
            raise PeerMissing("--onnx2tf-python is not given")
        try:
            answer = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PeerMissing(f"{python} is no Python interpreter that runs: {error}") from error
        versions = json.loads(answer.stdout)
        folder = python.absolute().parent  # not resolved: an environment's python is a link out of it
        # Without the onnxsim command it goes on, and writes files that no runtime loads.
        for command in ("onnx2tf", "onnxsim"):
            if command not in versions or not (folder / command).is_file():
                raise PeerMissing(f"{python} has no {command}")
        return cls(folder / "onnx2tf", versions)

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that it can run as installed."""
        return BACKENDS if {"tensorflow", "tf-keras"} <= set(self.versions) else BACKENDS[:1]

    def convert(
        self, model: Path, shapes: Mapping[str, tuple[int, ...]], backend: str, artefact: Path
    ) -> Run:
        """Converts a copy of `model`; its float32 file goes to `artefact`. Copying is not timed."""
        with tempfile.TemporaryDirectory(prefix="onnx2tf-") as temp:
            shutil.copyfile(model, Path(temp, "model.onnx"))
            command = [os.fspath(self.command), "-i", "model.onnx", "-o", "out", "--tflite_backend", backend]
            if shapes:
                command.append("--overwrite_input_shape")
                command += [f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items()]
            run = run_command(command, cwd=Path(temp), environment=self._environment(temp))
            written = Path(temp, "out", "model_float32.tflite")
            if run.made and not written.is_file():
                return replace(run, made=False, said="exit 0, but no file")
            if run.made:
                artefact.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(written, artefact)
            return run

    def _environment(self, temp: str) -> dict[str, str]:
        """Ours with its commands first, without what would show its Python our packages; its litter goes to `temp`."""
        path = f"{self.command.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return ours | {"PATH": path, "TMPDIR": temp}
