"""How each runtime loads and runs a model, as the user's own loop would: a module each, which imports its library.

Only the standard library, NumPy and the runtime come into the process: what is imported here is counted as theirs.
A loader has `require()`, which imports the runtime, and `load(path, settings)`, which gives a `Loaded`.
"""

from __future__ import annotations

import importlib

from onnxport.bench.loaders.base import Loader

# Runtime, as `Settings.runtime` has it, to its module; runtime.py is that of all others.
LOADERS = {
    "ort": f"{__name__}.ort",
    "litert": f"{__name__}.tflite",
    "predict": f"{__name__}.coreml",
}


def loader(runtime: str) -> Loader:
    if runtime not in LOADERS:
        from onnxport.bench.loaders.runtime import KindLoader

        return KindLoader(runtime)
    found: Loader = importlib.import_module(LOADERS[runtime])
    return found
