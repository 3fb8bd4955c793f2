"""Engines that take a model whole or not at all, probed by loading it and running it once, as `validate` does.

Their messages say what they refuse (`refusals`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.errors import MachineError, OnnxportError
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.probes import ProbeOptions
from onnxport.deployment.probes.ort import REFUSALS
from onnxport.deployment.probes.refusals import READERS
from onnxport.deployment.report import Placement
from onnxport.formats.input_shapes import GivenShape, apply_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.runtimes import registry
from onnxport.runtimes.base import Runtime
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains
from onnxport.samples.generator import KINDS, generate
from onnxport.samples.sizes import OpenSizes

# An engine's own program crashed or hung, which says nothing of the model.
_BROKEN = ("crashed (", "did not end within")


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Run the model once; raise MissingDependencyError if the engine is not installed."""
    kind = registry.find_runtime("onnx", options.runtime)
    factory = kind.load()
    model = Model.load(path)
    graph = estimation_graph(model)
    trial = _Trial(runnable_inputs(path, model, options.shapes), factory, options)
    version = importlib.metadata.version(kind.distributions[0])
    answer = options.placement(version).model_copy(update={"nodes": sum(1 for _ in graph.all_nodes())})
    message = trial.find_objection(path)
    if not message:
        ran = f"it ran once on {trial.sizes_text}"
        return answer.model_copy(update={"extent": "all", "taken": answer.nodes, "notes": (ran,)})
    if any(words in message for words in _BROKEN):
        return answer.model_copy(update={"extent": "unknown", "why": message[:300]})
    read = READERS[options.runtime](message, graph, model, trial.sizes)
    lost = {(each.op, each.node) for each in read.fallbacks}
    return answer.model_copy(
        update={
            "taken": answer.nodes - len(lost) if lost else 0,
            "fallbacks": read.fallbacks,
            "why": read.why,
            "notes": (f"it had to run on {trial.sizes_text}",),
        }
    )


@dataclass(frozen=True)
class _Trial:
    """One engine and one set of inputs."""

    feeds: Mapping[str, np.ndarray[Any, np.dtype[Any]]]
    factory: Callable[[Path, RuntimeOptions], Runtime]
    options: ProbeOptions

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.feeds.items()}

    @property
    def sizes_text(self) -> str:
        return ", ".join(f"{name} {list(shape)}" for name, shape in self.sizes.items()) or "no inputs"

    def find_objection(self, path: Path) -> str:
        """Return the engine's message if it does not run the file; empty if it does."""
        settings = RuntimeOptions(threads=self.options.threads)
        try:
            with contextlib.closing(self.factory(path, settings)) as runtime:
                runtime.run(self.feeds)
        except MachineError:
            raise
        except OnnxportError as error:
            return str(error.__cause__ or error.why or error)
        return ""


_MOST_TRIES = 40


def runnable_inputs(
    path: Path, model: Model, shapes: Mapping[str, GivenShape]
) -> Mapping[str, np.ndarray[Any, np.dtype[Any]]]:
    """Return the first inputs that ONNX Runtime runs at the user's `shapes`, or the first that was tried."""
    inputs, known = model.inputs, domains(model)
    sizes = OpenSizes(inputs, apply_shapes(inputs, shapes), size_limits(inputs, shapes))
    proposed = [
        generate(
            {spec.name: (spec, chosen[spec.name]) for spec in inputs}, known, kind=KINDS[0], seed=0, index=0
        )
        for chosen in islice(sizes.proposals(1), _MOST_TRIES if sizes.is_open else 1)
    ]
    if len(proposed) == 1:
        return proposed[0]
    try:
        session = open_session(path, threads=1)
    except REFUSALS:
        return proposed[0]
    return next((feeds for feeds in proposed if _runs(session, feeds)), proposed[0])


def _runs(session: Any, feeds: Mapping[str, Any]) -> bool:
    try:
        session.run(None, dict(feeds))
    except REFUSALS:
        return False
    return True
