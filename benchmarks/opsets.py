"""Bring real models to another opset with the installed command, each in a fresh process, with a proof.

    python -m benchmarks.opsets              # the newest opset that ONNX Runtime runs
    python -m benchmarks.opsets 11           # another one
    python -m benchmarks.opsets latest KEY...

Uses all trained models that packages contain, as they contain them (fixtures/models.toml). Exits with the number of
models that are neither proven nor refused with a reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

from fixtures import models
from onnxport.core.errors import CANNOT_CONVERT, PROVEN


def trained() -> list[str]:
    """The keys of the models that nobody made of something else."""
    keys = models.keys()
    return [key for key in keys if key.endswith(".onnx") and not models.entry(key).recipe]


def brought(key: str, opset: str, folder: Path) -> tuple[bool, str]:
    """Return whether the model is proven at the opset or refused, and a line about it."""
    source, output = models.path(key), folder / "brought.onnx"
    options = ["-o", output, "--opset", opset, "--no-simplify", "--json"]
    command = [sys.executable, "-m", "onnxport", "optimize", source, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sound = done.returncode in (PROVEN, CANNOT_CONVERT)
    if done.returncode != PROVEN:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return sound, f"exit {done.returncode}: {' | '.join(' '.join(line.split()) for line in lines[-4:])}"
    (artifact,) = json.loads(done.stdout)["artifacts"]
    said = [artifact["report"]["verdict"], artifact["report"]["reason"], *artifact.get("notes", ())]
    return sound, f"opset {_opset(source)} -> {_opset(output)}  {'; '.join(said)}"


def _opset(path: Path) -> str:
    imports = {
        entry.domain: entry.version for entry in onnx.load(path, load_external_data=False).opset_import
    }
    return str(imports.get("", imports.get("ai.onnx", "none")))


def main(arguments: Sequence[str]) -> int:
    """Prints a line per model; gives the number of those that are neither proven nor refused."""
    opset = arguments[0] if arguments else "latest"
    keys, failed = arguments[1:] or trained(), 0
    for key in keys:
        with tempfile.TemporaryDirectory() as folder:
            sound, line = brought(key, opset, Path(folder))
        failed += not sound
        print(f"{key:50} {line}", flush=True)
    print(f"{len(keys) - failed} of {len(keys)} are sound")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
