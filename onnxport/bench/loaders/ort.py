"""ONNX Runtime: `session.run(None, feeds)`, with the row's settings and defaults for all others."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from onnxport.bench.loaders.base import Chosen, Run
from onnxport.bench.providers import SUFFIX, install_provider
from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.runtimes.ort.custom_operators import register_libraries

_CPU = f"CPU{SUFFIX}"


def require() -> None:
    importlib.import_module("onnxruntime")


class OrtModel:
    def __init__(self, path: str, settings: Chosen) -> None:
        import onnxruntime

        from onnxport.runtimes.ort.inference_session import open_file

        self._path = path
        wanted = settings.get("provider") or "cpu"
        name = _full(wanted, onnxruntime.get_available_providers())
        options, threads = onnxruntime.SessionOptions(), settings.get("threads")
        if level := settings.get("level"):
            kind = "ORT_DISABLE_ALL" if level == "disable" else f"ORT_ENABLE_{level.upper()}"
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, kind)
        if threads:
            options.intra_op_num_threads = threads
        if optimized := settings.get("optimized"):
            options.optimized_model_filepath = optimized
            # Weights may exceed protobuf's limit of 2 GB.
            data = f"{os.path.basename(optimized)}.data"
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", data)
        register_libraries(options)
        # XNNPACK has its own thread pool, which session options do not set.
        own = {"intra_op_num_threads": str(threads)} if wanted == "xnnpack" and threads else {}
        providers = [(name, own), *([] if name == _CPU else [_CPU])]
        try:
            open_it = partial(onnxruntime.InferenceSession, sess_options=options, providers=providers)
            self._session = open_file(open_it, Path(path), options)
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise _refusal(f"ONNX Runtime cannot load {path}", error) from error
        if name not in self._session.get_providers():  # a provider that cannot start is skipped silently
            raise MissingDependencyError(
                f"this ONNX Runtime has {name.removesuffix(SUFFIX)}, but could not start it",
                why="its libraries or its device are missing, or have another version",
                fix=install_provider(wanted),
            )
        self.ran_on = f"ONNX Runtime {onnxruntime.__version__}, {name.removesuffix(SUFFIX)}"
        self.inputs = [(each.name, each.type, tuple(each.shape)) for each in self._session.get_inputs()]
        self.outputs = [(each.name, each.type, tuple(each.shape)) for each in self._session.get_outputs()]

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        self._feeds = dict(feeds)
        return partial(self._session.run, None, self._feeds)

    def answers(self) -> dict[str, Any]:
        values = self._session.run(None, self._feeds)
        return {name: value for (name, _, _), value in zip(self.outputs, values, strict=True)}

    def refusal(self, error: Exception) -> InputError:
        return _refusal(f"ONNX Runtime cannot run {self._path}", error)


load = OrtModel


def _full(wanted: str, available: list[str]) -> str:
    """Return ONNX Runtime's name of a provider."""
    for name in available:
        if name.removesuffix(SUFFIX).lower() == wanted:
            return name
    has = ", ".join(name.removesuffix(SUFFIX).lower() for name in available)
    raise MissingDependencyError(
        f"this ONNX Runtime has no execution provider {wanted!r}",
        why=f"it has {has}",
        fix=install_provider(wanted),
    )


def _refusal(what: str, error: Exception) -> InputError:
    from onnxport.runtimes.ort.parsing import cause

    return InputError(what, why=cause(error))
