"""ONNX Runtime with its profiler, in a process of its own.

The profiler writes a file of its events at the end of a session. A session with it and one without run in turns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import numpy as np

from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.profiling import trace_file
from onnxport.profiling.graphs import Graph, onnx_graph, ort_graph
from onnxport.profiling.interleaving import in_turns
from onnxport.profiling.recording import Recording
from onnxport.runtimes.options import OrtLevel, RuntimeOptions
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.runtimes.ort.session import OrtRuntime, provider_named

# The profiler keeps a million events of a session, one or two a node and run, and each is a kilobyte of JSON.
_MOST_EVENTS = 100_000
_LEAST_RUNS = 3
_CHAINS = (2, 102)  # nodes
_CHAIN_RUNS = 60


class OrtProfiler:
    """Serves the parent: `open`, then `record`."""

    def open(self, path: Path, options: RuntimeOptions, folder: Path) -> tuple[TensorSpec, ...]:
        """Loads the model; its inputs.

        Args:
            folder: for what the profiler and the session write; the parent's, who outlives this process.

        Raises:
            InputError, MissingDependencyError: as OrtRuntime.
        """
        with OrtRuntime(path, options) as runtime:
            self._name, inputs = runtime.name, runtime.inputs
        self._folder = folder
        self._options, self._provider = options, provider_named(options.provider)
        self._plain = self._session(path, options.level)
        self._profiled, self._executed = self._watched(path)
        return inputs

    def record(self, feeds: Feeds, runs: int, warmup: int) -> Recording:
        """Runs the model in turns with and without the profiler."""
        nodes = max(1, sum(1 for _ in self._executed.walk()))
        most = max(_LEAST_RUNS, _MOST_EVENTS // (2 * nodes) - warmup)
        notes = (
            [f"{most} runs, not {runs}: the profiler keeps no more of {nodes} nodes"] if runs > most else []
        )
        plain, profiled = in_turns(
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
            runs=tuple(trace_file.run_of(run, kernels, self._executed, costs) for run, kernels in found),
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

    def _watched(self, path: Path) -> tuple[Any, Graph]:
        """The session with the profiler, and what it executes."""
        level = self._options.level
        if path.suffix.lower() == ".ort":
            return self._session(path, level, **self._profiling("model")), ort_graph(path)
        optimized = Path(self._folder, "optimized.onnx")
        try:
            session = self._session(path, level, optimized=optimized, **self._profiling("model"))
        except Exception:  # a provider that compiles nodes cannot write them down
            return self._session(path, level, **self._profiling("model")), Graph(())
        return session, onnx_graph(optimized)

    def _profiling(self, name: str) -> dict[str, Any]:
        return {"enable_profiling": True, "profile_file_prefix": os.path.join(self._folder, name)}

    def _events(self, session: Any) -> list[trace_file.Event]:
        """What the profiler wrote of a session, which is over then."""
        file = Path(session.end_profiling())
        events = trace_file.read_events(file)
        file.unlink()
        return events

    def _costs(self) -> trace_file.Costs:
        """What the profiler costs, told by two chains of nodes that do next to nothing.

        The profiler describes shapes, sizes and threads of a node before it reads the clock (EndTimeAndRecordEvent in
        onnxruntime/core/common/profiler.cc is handed all that), so the time that it tells is longer than what a node
        more costs a run without it.
        """
        feeds = {"x": np.ones((1, 1, 1, 1), np.float32)}
        chains = [_chain(length) for length in _CHAINS]
        few, many = (self._session(chain, "disable") for chain in chains)
        watched = self._session(chains[1], "disable", **self._profiling("chain"))
        rounds = _CHAIN_RUNS, _CHAIN_RUNS // 4
        without, _ = in_turns(lambda: many.run(None, feeds), lambda: watched.run(None, feeds), *rounds)
        short, _ = in_turns(lambda: few.run(None, feeds), lambda: few.run(None, feeds), *rounds)
        runs = trace_file.kernels_by_run(self._events(watched))[-_CHAIN_RUNS:]
        told = _quick([fmean(trace_file.middle(kernel["dur"]) for kernel in kernels) for _, kernels in runs])
        whole = _quick([run["dur"] / len(kernels) for run, kernels in runs])
        least = 1e6 * _quick(short)
        node = (1e6 * _quick(without) - least) / (_CHAINS[1] - _CHAINS[0])
        return trace_file.Costs(
            within=max(0.0, told - node),
            between=max(0.0, whole - told),
            outside=max(0.0, least - _CHAINS[0] * node),
        )


def _quick(times: Sequence[float]) -> float:
    """The lower quartile: of work that is always the same, what is above was disturbed."""
    return quantiles(times, n=4)[0]


def _chain(length: int) -> bytes:
    """A model of `length` additions, each of what the one before made, of one element."""
    from onnx import TensorProto, helper

    shape = [1, 1, 1, 1]
    names = ["x", *(f"v{place}" for place in range(1, length)), "y"]
    nodes = [
        helper.make_node("Add", [before, "one"], [after], name=after) for before, after in pairwise(names)
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("one", TensorProto.FLOAT, shape, [1.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data
