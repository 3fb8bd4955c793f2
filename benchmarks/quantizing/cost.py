"""The cost of a quantization, and our own command with its cost measured as the peers' is."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import run_command

# What `onnxport quantize --int8` imports before it looks at the model, with its settings: a process that does nothing
# else is the zero of our clock, as the end of its imports is a peer's.
_IMPORTS = """
import sys
sys.argv = ["onnxport", "quantize", "--help"]
import onnxport.cli
onnxport.cli.make_settings()
import onnxport.cli.quantize
import onnx, onnx_ir, onnxruntime, numpy
import onnxport.pipelines.runner.steps, onnxport.pipelines.runner.jobs
import onnxport.quantize.int8, onnxport.optimizers.canonical_form
"""


@dataclass(frozen=True)
class Cost:
    """Of one quantization, from the float file to the written one.

    Attributes:
        cpu: processor seconds without imports, of all its processes.
        seconds: of wall time without imports.
        peak: the most memory of its processes together, in MB.
        megabytes: of the file that it wrote.
        said: what went wrong; empty when nothing did.
    """

    cpu: float = 0.0
    seconds: float = 0.0
    peak: float = 0.0
    megabytes: float = 0.0
    said: str = ""


def quantize(model: Path, samples: Path, out: Path, arguments: Sequence[str]) -> Cost:
    """The installed command without its final proof, less what a process costs that only imports the same.

    Its cache is on, as it is by default, and empty.
    """
    imports = _imports()
    command = [
        str(Path(sys.executable).with_name("onnxport")),
        "quantize",
        str(model),
        "-o",
        str(out),
        "--no-validate",
    ]
    if "--dynamic" not in arguments:
        command += ["--int8", "--calib", str(samples)]
    with tempfile.TemporaryDirectory(prefix="cache-") as cache:
        run = run_command([*command, *arguments], environment=os.environ | {"ONNXPORT_CACHE": cache})
    if not run.made:
        return Cost(said=run.said)
    return Cost(run.cpu_seconds - imports[0], run.seconds - imports[1], run.peak, out.stat().st_size / 1e6)


def _imports() -> tuple[float, float]:
    """Processor and wall seconds of the imports, measured beside each run: a busy machine slows both."""
    run = run_command([sys.executable, "-c", _IMPORTS])
    if not run.made:
        raise SystemExit(f"onnxport could not be imported: {run.said}")
    return run.cpu_seconds, run.seconds
