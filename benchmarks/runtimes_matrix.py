"""Find which real models other engines load, and which of them they compute as ONNX Runtime does.

    python -m benchmarks.runtimes_matrix [--engines tract,openvino,ncnn,mnn,mnn+winograd=off] [--json FILE] [MODEL ...]

Each model goes through the installed command in a fresh process, `onnxport validate MODEL MODEL --candidate-runtime
runtime=ENGINE`, at the sizes of fixtures/models.toml; for one that is not equivalent `onnxport debug` names the node.
The table is that of docs/guide/runtimes.md. `--json` keeps earlier results and measures only the given MODELs again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fixtures import models

DISTRIBUTIONS = {"tract": "tract", "openvino": "openvino", "ncnn": "ncnn", "mnn": "MNN"}
# With settings behind a plus.
ENGINES = (*DISTRIBUTIONS, "mnn+winograd=off")
# Beside the 34 that packages carry as finished models: exports and random weights of ours.
_OURS = ("light/", "minilm/", "mobilenetv2/", "efficientnet_lite0/")
# Sampling rates are 8000 or 16000, of which one fits the window.
_FED = {
    "silero-vad/silero_vad.onnx": {"sr": np.array(16000)},
    "silero-vad/silero_vad_16k_op15.onnx": {"sr": np.array(16000)},
    "silero-vad/silero_vad_op18_ifless.onnx": {"sr": np.array(16000)},
}
_WORDS = {0: "proven", 4: "refused", 5: "not installed", 6: "crashed"}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    known = given.json is not None and given.json.exists()
    found: dict[str, dict[str, Any]] = json.loads(given.json.read_text()) if known else {}
    for engine in given.engines.split(","):
        rows = found.setdefault(engine, {})
        for key in given.models or keys():
            rows[key] = asked(engine, key)
            print(engine, key, rows[key]["verdict"], rows[key]["said"], sep="  ", file=sys.stderr, flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps(found, indent=1))
    print(table(found))


def keys() -> list[str]:
    """The 34 models."""
    return [key for key in list(models.keys()) if key.endswith(".onnx") and not key.startswith(_OURS)]


def asked(engine: str, key: str) -> dict[str, Any]:
    """Return the verdict for a model on the engine, the exit code, and the message where it is not proven."""
    path = str(models.path(key))
    with tempfile.TemporaryDirectory() as folder:
        settings = f"runtime={engine}".split("+")
        options = [part for each in settings for part in ("--candidate-runtime", each)]
        options += _inputs(key, Path(folder))
        code, document, said = _command("validate", path, path, *options)
        row = {
            "verdict": _WORDS.get(code, f"exit {code}"),
            "exit_code": code,
            "said": said.replace(path, "it"),
        }
        if code != 1:
            return row
        report = document["artifacts"][0]["report"]
        row |= {"verdict": report["verdict"], "said": report["reason"]}
        code, document, said = _command("debug", path, path, *options)
        diagnosis = document["artifacts"][0]["report"]["diagnosis"] if document else None
        return row | {"node": diagnosis["summary"] if diagnosis else said}


def _inputs(key: str, folder: Path) -> list[str]:
    """Sizes, or samples where an input may hold what another's size does not go with."""
    shapes = models.shapes(key)
    if key not in _FED:
        return [
            part
            for name, shape in shapes.items()
            if shape
            for part in ("--shape", f"{name}={','.join(map(str, shape))}")
        ]
    noise = np.random.default_rng(0)
    samples = {name: noise.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(folder / "inputs.npz", **(samples | _FED[key]))
    return ["--inputs", str(folder / "inputs.npz")]


def _command(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON document, and the error in one line."""
    done = subprocess.run(
        [sys.executable, "-m", "onnxport", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return (
        done.returncode,
        json.loads(done.stdout or "{}"),
        errors[-1].removeprefix("error: ") if errors else "",
    )


def table(found: dict[str, dict[str, Any]]) -> str:
    """As Markdown: a row per model, a column per engine, and how many each proves."""
    head = [f"{engine} {version(DISTRIBUTIONS[engine.partition('+')[0]])}" for engine in found]
    lines = [f"| model | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    for key in keys():
        verdicts = (rows.get(key, {}).get("verdict", "") for rows in found.values())
        lines.append(f"| {key} | {' | '.join(verdicts)} |")
    sums = (sum(row["verdict"] == "proven" for row in rows.values()) for rows in found.values())
    return "\n".join([*lines, f"| proven | {' | '.join(map(str, sums))} |"])


if __name__ == "__main__":
    main(sys.argv[1:])
