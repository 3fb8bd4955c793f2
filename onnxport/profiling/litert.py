"""LiteRT with its profiler, in a process of its own.

Runs without the profiler are `Interpreter.invoke()`, as apps and `onnxport bench` call it. Runs with it go through
the library's C interface, since nothing else reaches the profiler (litert_library.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxport.bench.loaders import tflite
from onnxport.bench.loaders.base import Chosen
from onnxport.bench.ports import TflitePorts
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.graph import OperatorGraph
from onnxport.profiling.interleaving import time_in_turns, typical
from onnxport.profiling.litert_events import DELEGATED, Event, Step, invocation, steps
from onnxport.profiling.litert_library import ProfiledModel
from onnxport.profiling.litert_nodes import Executed, match_steps
from onnxport.profiling.recording import Recording, Run, Span
from onnxport.profiling.tflite_graph import read_operators
from onnxport.profiling.xnnpack import shown
from onnxport.runtimes.options import RuntimeOptions

_LOOPS = (
    "the times of nodes leave out what a loop takes besides its body: most of that is the profiler's own work"
)
_PROVIDERS = {True: "XNNPACK", False: "LiteRT"}


class LitertProfiler:
    """The child's side; the parent calls `open`, then `record`."""

    def open(self, path: Path, options: RuntimeOptions, _: Path) -> tuple[TensorSpec, ...]:
        """Load the model and return its inputs.

        Raises:
            InputError, MissingDependencyError: as TfliteModel and ProfiledModel.
        """
        plain = options.delegate == "none"
        settings: Chosen = {"threads": options.threads, "provider": "cpu" if plain else "xnnpack"}
        self._model = tflite.load(str(path), settings)
        self._ports = TflitePorts(path, self._model.inputs)
        self._profiled = ProfiledModel(path, "builtin" if plain else "delegate", options.threads)
        self._operators = read_operators(path)
        return self._ports.inputs

    def record(self, feeds: Feeds, runs: int, warmup: int) -> Recording:
        """Run the model in turns with and without the profiler."""
        entering = self._ports.to_runtime(feeds)
        plain_run = self._model.feed(entering)
        answers = self._model.answers()
        by_number = ({int(key): array for key, array in each.items()} for each in (entering, answers))
        self._profiled.feed(*by_number)
        recorded: list[list[Event]] = []

        def collect() -> None:
            recorded.append(self._profiled.events())

        plain, profiled = time_in_turns(plain_run, self._profiled.run, runs, warmup, after=collect)
        sequences = [steps(events) for events in recorded]
        ran = match_steps(sequences[-1], self._operators)
        within = [each.elapsed for each in map(invocation, recorded) if each is not None]
        outside = 1e6 * typical(profiled) - typical(within) if within else 0.0
        main = self._operators.main
        return Recording(
            ran_on=self._model.ran_on,
            plain=plain,
            profiled=profiled,
            outside=max(0.0, outside),
            runs=tuple(_run(*each, ran) for each in zip(recorded, sequences, strict=True)),
            executed=OperatorGraph(list(ran.nodes), main.inputs, constants=main.constants),
            file=self._operators.noted_graph(),
            noted=self._operators.noted,
            notes=(_LOOPS,) if any(step.holder for step in sequences[-1]) else (),
        )


def _run(events: Sequence[Event], sequence: Sequence[Step], executed: Executed) -> Run:
    whole = invocation(events)
    spans = [
        Span(
            node=place,
            name=name or shown(step.event.tag),
            op=shown(step.event.tag),
            provider=_PROVIDERS[step.event.kind == DELEGATED],
            start=step.start,
            duration=step.duration,
            own=step.own,
        )
        for step, place, name in zip(sequence, executed.places, executed.names, strict=False)
    ]
    start, duration = (whole.start, whole.elapsed) if whole is not None else (0, 0)
    return Run(start, duration, tuple(spans))
