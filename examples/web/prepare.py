"""Put a web page, a model for it, ONNX Runtime Web, and inputs with their answers into a folder.

    python examples/web/prepare.py site [MODEL]
    python -m http.server --bind 127.0.0.1 --directory site 8000

MODEL is an `.onnx` file with inputs of float32, int32, int64 or bool. onnxruntime-web comes from npm (33 MB, pinned by
its hash) and stays in the cache of the fixtures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import onnxport

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from fixtures import archives, models  # noqa: E402 - found through the line above

PACKAGE = "onnxruntime-web@1.30.0"
SHA256 = "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71"
LIBRARY = (
    "ort.wasm.bundle.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
    "ort.webgpu.bundle.min.mjs",
    "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)


def library() -> Path:
    """Return the folder with ONNX Runtime Web's files; fetch them once."""
    folder = models.cache_dir() / "npm" / PACKAGE
    if not folder.is_dir():
        models.cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=models.cache_dir(), prefix="fetching-") as temp:
            archive = archives.download_npm(PACKAGE, SHA256, Path(temp, "download"))
            archives.unpack(archive, Path(temp, "files"), [f"package/dist/{name}" for name in LIBRARY])
            archives.put(Path(temp, "files", "package", "dist"), folder)
    return folder


def prepare(folder: Path, model: Path) -> None:
    """Write the page and all that it loads: the model as `.ort`, once for each provider."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "index.html", folder)
    for name in LIBRARY:
        shutil.copy(library() / name, folder)
    with tempfile.TemporaryDirectory() as temp:
        samples = Path(temp, "samples")
        onnxport.convert_model(model, "ort", folder / "model.ort")
        onnxport.convert_model(model, "ort", folder / "webgpu.ort", fit="webgpu")
        onnxport.write_samples(model, samples)
        inputs = dict(np.load(sorted(samples.glob("*.npz"))[0]))
    with onnxport.load(model) as runtime:
        answers = runtime.run(inputs)
    case = {"inputs": _listed(inputs), "answers": _listed(answers)}
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")


def _listed(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {
        name: {"type": array.dtype.name, "dims": array.shape, "data": array.ravel().tolist()}
        for name, array in arrays.items()
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path, nargs="?", default=ROOT / "fixtures" / "digits" / "digits.onnx")
    options = parser.parse_args()
    prepare(options.folder, options.model)
    print(f"{options.folder}: python -m http.server --bind 127.0.0.1 --directory {options.folder} 8000")


if __name__ == "__main__":
    main()
