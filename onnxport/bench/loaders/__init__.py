"""Loaders: a module per runtime loads and runs a model as a user's own loop would.

A loader imports only the standard library, NumPy and its runtime, since all else would count as the runtime's memory.
It has `require()`, which imports the runtime, and `load(path, settings)`, which returns a `Loaded`.
"""

from __future__ import annotations

import importlib

from onnxport.bench.loaders.base import Loader

# Runtime, as in `Settings.runtime`, to its module; runtime.py is for all others.
LOADERS = {"ort": f"{__name__}.ort", "litert": f"{__name__}.tflite", "predict": f"{__name__}.coreml"}


def loader_for(runtime: str) -> Loader:
    if runtime not in LOADERS:
        from onnxport.bench.loaders.runtime import KindLoader

        return KindLoader(runtime)
    found: Loader = importlib.import_module(LOADERS[runtime])
    return found
