"""Engines that take a model whole or not at all, asked by loading it and running it once.

They are the runtimes that `validate` runs (`runtimes/foreign`), so that "takes it" means the same in both.
What one refuses is read off its own words (`refusals`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.errors import MachineError, OnnxportError
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.probes import AskOptions
from onnxport.deployment.probes.inputs import one_set
from onnxport.deployment.probes.refusals import READERS
from onnxport.deployment.report import Placement
from onnxport.formats.model import Model
from onnxport.runtimes import registry
from onnxport.runtimes.base import Runtime
from onnxport.runtimes.options import RuntimeOptions

# Words about a program that an engine starts: that it crashes or hangs says nothing of the model.
_BROKEN = ("crashed (", "did not end within")


def ask(path: Path, options: AskOptions) -> Placement:
    """Raises MissingDependencyError where the engine is not installed."""
    kind = registry.find_runtime("onnx", options.runtime)
    factory = kind.load()
    model = Model.load(path)
    graph = estimation_graph(model)
    trial = _Trial(one_set(path, model, options.shapes), factory, options)
    answer = Placement(
        runtime=options.runtime,
        title=options.title,
        how="asked",
        extent="none",
        version=importlib.metadata.version(kind.distributions[0]),
        nodes=sum(1 for _ in graph.all_nodes()),
    )
    said = trial.objection(path)
    if not said:
        ran = f"it ran once on {trial.sizes_said}"
        return answer.model_copy(update={"extent": "all", "taken": answer.nodes, "notes": (ran,)})
    if any(words in said for words in _BROKEN):
        return answer.model_copy(update={"extent": "unknown", "why": said[:300]})
    read = READERS[options.runtime](said, graph, model, trial.sizes)
    lost = {(each.op, each.node) for each in read.fallbacks}
    return answer.model_copy(
        update={
            "taken": answer.nodes - len(lost) if lost else 0,
            "fallbacks": read.fallbacks,
            "why": read.why,
            "notes": (f"it was asked to run on {trial.sizes_said}",),
        }
    )


@dataclass(frozen=True)
class _Trial:
    """One engine and one set of inputs."""

    feeds: Mapping[str, np.ndarray[Any, np.dtype[Any]]]
    factory: Callable[[Path, RuntimeOptions], Runtime]
    options: AskOptions

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.feeds.items()}

    @property
    def sizes_said(self) -> str:
        return ", ".join(f"{name} {list(shape)}" for name, shape in self.sizes.items()) or "no inputs"

    def objection(self, path: Path) -> str:
        """Why the engine does not run the file, in its own words; empty where it does."""
        settings = RuntimeOptions(threads=self.options.threads)
        try:
            with contextlib.closing(self.factory(path, settings)) as runtime:
                runtime.run(self.feeds)
        except MachineError:
            raise
        except OnnxportError as error:
            return str(error.__cause__ or error.why or error)
        return ""
