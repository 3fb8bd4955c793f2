"""The peers, each in a separate environment, and the model prepared as their manuals say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import version_converter

from benchmarks.commands import run_command
from benchmarks.quantizing.cost import Cost

# Environment -> its tools, of peer_process.TOOLS.
ENVIRONMENTS = {
    "onnxruntime": ("ort-minmax", "ort-percentile", "ort-entropy", "ort-dynamic"),
    "nncf": ("nncf",),
    "neural-compressor": ("neural-compressor",),
    "modelopt": ("modelopt",),
    "quark": ("quark",),
}
PACKAGES = {
    "onnxruntime": "onnxruntime",
    "nncf": "nncf",
    "neural-compressor": "onnx-neural-compressor",
    "modelopt": "nvidia-modelopt",
    "quark": "amd-quark",
}
_PROGRAM = Path(__file__).with_name("peer_process.py")
_PER_CHANNEL_OPSET = 13


@dataclass(frozen=True)
class Peer:
    """A tool and the Python that has it."""

    tool: str
    python: Path

    def quantize(self, model: Path, samples: Path, out: Path, count: int) -> Cost:
        """Quantizes a copy of `model` to `out` on the first `count` of the samples; imports are not counted."""
        with tempfile.TemporaryDirectory(prefix="peer-") as temp:
            copy, made, facts = (Path(temp, name) for name in ("model.onnx", "made.onnx", "facts.json"))
            shutil.copyfile(model, copy)
            arguments = (_PROGRAM, self.tool, copy, samples, made, count, facts)
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            run = run_command(
                [os.fspath(self.python), *map(str, arguments)],
                cwd=Path(temp),
                environment=environment | {"TMPDIR": temp},
            )
            if not (run.made and made.exists() and facts.exists()):
                return Cost(said=run.said or "exit 0, but no file")
            # External data keep their name, which the model refers to.
            for written in Path(temp).glob("made.onnx*"):
                shutil.move(written, out if written == made else out.parent / written.name)
            measured = json.loads(facts.read_text())
            return Cost(measured["cpu"], measured["seconds"], run.peak, out.stat().st_size / 1e6)


def peers(given: Mapping[str, Path]) -> dict[str, Peer]:
    """The tools of the environments that are given."""
    return {tool: Peer(tool, python) for name, python in given.items() for tool in ENVIRONMENTS[name]}


def versions(given: Mapping[str, Path]) -> dict[str, str]:
    """The versions of the packages that the environments are for, and of ONNX Runtime there."""
    found = {}
    for name, python in given.items():
        ask = (
            f"import importlib.metadata as m; print(m.version({PACKAGES[name]!r}), m.version('onnxruntime'))"
        )
        run = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        own, runtime = run.stdout.split()
        found[name] = own if name == "onnxruntime" else f"{own} (with onnxruntime {runtime})"
    return found


def prepared(python: Path, model: Path, to: Path) -> Path:
    """The model as ONNX Runtime's manual has it prepared, by its own tool: optimized, with BatchNormalization folded.

    Lifted before that to the first opset with scales per channel. None of it is on the peers' clock.
    """
    lifted = to.with_suffix(".lifted.onnx")
    proto = onnx.load(model)
    if next(each.version for each in proto.opset_import if not each.domain) < _PER_CHANNEL_OPSET:
        proto = version_converter.convert_version(proto, _PER_CHANNEL_OPSET)
    del proto.graph.value_info[:]
    onnx.save(proto, lifted)
    command = [python, "-m", "onnxruntime.quantization.preprocess", "--input", lifted, "--output", to]
    subprocess.run(
        [*command, "--skip_symbolic_shape", "True"], capture_output=True, check=True, cwd=to.parent
    )
    lifted.unlink()
    return to
