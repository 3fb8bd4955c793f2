"""Core ML, on macOS: `MLModel.predict` on inputs that were prepared once."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxport.bench.loaders.base import Chosen, Run
from onnxport.core.errors import InputError


def require() -> None:
    importlib.import_module("onnxport.runtimes.coreml").coremltools()


class CoremlModel:
    def __init__(self, path: str, settings: Chosen) -> None:
        from onnxport.runtimes.coreml import CoremlRuntime
        from onnxport.runtimes.options import RuntimeOptions

        self._path = path
        self._runtime = CoremlRuntime(Path(path), RuntimeOptions(units=settings.get("provider") or "all"))  # type: ignore[arg-type]
        self.ran_on = self._runtime.name
        self.inputs = [(each.name, each.dtype, each.shape) for each in self._runtime.inputs]
        self.outputs = [(each.name, each.dtype, each.shape) for each in self._runtime.outputs]

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        self._feeds = feeds
        return self._runtime.prepared(feeds)

    def answers(self) -> dict[str, Any]:
        return self._runtime.run(self._feeds)

    def refusal(self, error: Exception) -> InputError:
        return InputError(f"Core ML cannot run {self._path}", why=(str(error).splitlines() or [""])[0][:400])


load = CoremlModel
