"""A measuring process whose model wakes up slowly: runs of 90, 40, then 2 ms."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from onnxport.bench import worker
from onnxport.bench.loaders import loader_for
from onnxport.bench.loaders.base import Chosen, Loaded, Run

SECONDS = (0.09, 0.04, 0.002)


class _Waking:
    def __init__(self, model: Loaded) -> None:
        self._model = model
        self.runs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def feed(self, feeds: Mapping[str, Any]) -> Run:
        self._model.feed(feeds)

        def run() -> None:
            time.sleep(SECONDS[min(self.runs, len(SECONDS) - 1)])
            self.runs += 1

        return run


class _Loader:
    def require(self) -> None:
        loader_for("ort").require()

    def load(self, path: str, settings: Chosen) -> Any:
        return _Waking(loader_for("ort").load(path, settings))


class Runner(worker.Runner):
    def require(self, runtime: str) -> dict[str, Any]:
        found = super().require(runtime)
        self._loader = _Loader()
        return found
