"""ONNX Runtime with its profiler, in a process of its own.

The profiler writes its events to a file when a session ends. A session with it and one without run in turns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import numpy as np

from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.graph import OperatorGraph
from onnxport.formats.graph.onnx import read_onnx
from onnxport.formats.graph.ort import read_ort
from onnxport.profiling import trace_file
from onnxport.profiling.interleaving import time_in_turns
from onnxport.profiling.recording import Recording
from onnxport.runtimes.options import OrtLevel, RuntimeOptions
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.runtime import OrtRuntime, find_provider

# The profiler keeps a million events of a session, one or two per node and run; each is a kilobyte of JSON.
_MOST_EVENTS = 100_000
_LEAST_RUNS = 3
_CHAINS = (2, 102)  # nodes
_CHAIN_RUNS = 60


class OrtProfiler:
    """The child's side; the parent calls `open`, then `record`."""

    def open(self, path: Path, options: RuntimeOptions, folder: Path) -> tuple[TensorSpec, ...]:
        """Load the model and return its inputs; the parent removes `folder`, which holds the profiler's files.

        Raises:
            InputError, MissingDependencyError: as OrtRuntime.
        """
        with OrtRuntime(path, options) as runtime:
            self._name, inputs = runtime.name, runtime.inputs
        self._folder = folder
        self._options, self._provider = options, find_provider(options.provider)
        self._plain = self._session(path, options.level)
        self._profiled, self._executed = self._profiled_session(path)
        return inputs

    def record(self, feeds: Feeds, runs: int, warmup: int) -> Recording:
        """Run the model in turns with and without the profiler."""
        nodes = max(1, sum(1 for _ in self._executed.walk()))
        most = max(_LEAST_RUNS, _MOST_EVENTS // (2 * nodes) - warmup)
        limit = f"{most} runs instead of {runs}: the profiler keeps no more events of {nodes} nodes"
        notes = [limit] if runs > most else []
        plain, profiled = time_in_turns(
            lambda: self._plain.run(None, feeds),
            lambda: self._profiled.run(None, feeds),
            min(runs, most),
            warmup,
        )
        found = trace_file.kernels_by_run(self._events(self._profiled))[-len(profiled) :]
        costs = self._costs()
        return Recording(
            ran_on=self._name,
            plain=plain,
            profiled=profiled,
            outside=costs.outside,
            runs=tuple(trace_file.read_run(run, kernels, self._executed, costs) for run, kernels in found),
            executed=self._executed,
            overhead=costs.within,
            notes=tuple(notes),
        )

    def _session(self, model: Path | bytes, level: OrtLevel, **settings: Any) -> Any:
        return open_session(
            model,
            level=level,
            threads=self._options.threads,
            provider=self._provider,
            optimized_weights="weights",
            # Else the threads of one session, waiting for more to do, take the cores from the other.
            config={"session.force_spinning_stop": "1"},
            **settings,
        )

    def _profiled_session(self, path: Path) -> tuple[Any, OperatorGraph]:
        """Return the session with the profiler, and the graph that it executes."""
        level = self._options.level
        if path.suffix.lower() == ".ort":
            return self._session(path, level, **self._profiling("model")), read_ort(path).graph
        optimized = Path(self._folder, "optimized.onnx")
        try:
            session = self._session(path, level, optimized=optimized, **self._profiling("model"))
        except Exception:  # a provider that compiles nodes cannot save them
            return self._session(path, level, **self._profiling("model")), OperatorGraph([])
        return session, read_onnx(optimized)

    def _profiling(self, name: str) -> dict[str, Any]:
        return {"enable_profiling": True, "profile_file_prefix": os.path.join(self._folder, name)}

    def _events(self, session: Any) -> list[trace_file.Event]:
        """End a session and return the profiler's events."""
        file = Path(session.end_profiling())
        events = trace_file.read_events(file)
        file.unlink()
        return events

    def _costs(self) -> trace_file.Costs:
        """Measure what the profiler costs, on two chains of nodes that do almost nothing.

        The profiler collects shapes, sizes and threads of a node before it reads the clock (EndTimeAndRecordEvent in
        onnxruntime/core/common/profiler.cc), so its times exceed what one more node costs a run without it.
        """
        feeds = {"x": np.ones((1, 1, 1, 1), np.float32)}
        chains = [_chain(length) for length in _CHAINS]
        few, many = (self._session(chain, "disable") for chain in chains)
        watched = self._session(chains[1], "disable", **self._profiling("chain"))
        rounds = _CHAIN_RUNS, _CHAIN_RUNS // 4
        without, _ = time_in_turns(lambda: many.run(None, feeds), lambda: watched.run(None, feeds), *rounds)
        short, _ = time_in_turns(lambda: few.run(None, feeds), lambda: few.run(None, feeds), *rounds)
        runs = trace_file.kernels_by_run(self._events(watched))[-_CHAIN_RUNS:]
        durations = ([trace_file.midpoint(kernel["dur"]) for kernel in kernels] for _, kernels in runs)
        measured = _lower_quartile(map(fmean, durations))
        whole = _lower_quartile(run["dur"] / len(kernels) for run, kernels in runs)
        least = 1e6 * _lower_quartile(short)
        node = (1e6 * _lower_quartile(without) - least) / (_CHAINS[1] - _CHAINS[0])
        return trace_file.Costs(
            within=max(0.0, measured - node),
            between=max(0.0, whole - measured),
            outside=max(0.0, least - _CHAINS[0] * node),
        )


def _lower_quartile(times: Iterable[float]) -> float:
    """Return the lower quartile: the same work takes longer only when disturbed."""
    return quantiles(times, n=4)[0]


def _chain(length: int) -> bytes:
    """Return a model of `length` additions of one element, one after the other."""
    from onnx import TensorProto, helper

    shape = [1, 1, 1, 1]
    names = ["x", *(f"v{place}" for place in range(1, length)), "y"]
    nodes = [helper.make_node("Add", [old, "one"], [new], name=new) for old, new in pairwise(names)]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name in "xy")
    one = helper.make_tensor("one", TensorProto.FLOAT, shape, [1.0])
    graph = helper.make_graph(nodes, "chain", inputs, outputs, [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())
