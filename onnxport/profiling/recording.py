"""The result of a profiled process: times of runs, and when each node computed."""

from __future__ import annotations

from dataclasses import dataclass

from onnxport.formats.graph import OperatorGraph


@dataclass(frozen=True)
class Span:
    """One execution of a node.

    Attributes:
        node: its place in `Recording.executed.walk()`; -1 if the graph does not have it.
        name, op, provider: the runtime's names.
        start, duration: microseconds; `start` counts from a moment before the first run.
        own: `duration` without the nodes in its body and without the profiler's own time.
    """

    node: int
    name: str
    op: str
    provider: str
    start: float
    duration: float
    own: float


@dataclass(frozen=True)
class Run:
    """One profiled run: microseconds, and the executed nodes in order."""

    start: float
    duration: float
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Recording:
    """All runs of a profile.

    Attributes:
        plain: seconds of each run without the profiler.
        profiled: seconds of each run with the profiler, as the caller measures them.
        outside: microseconds of a run in the session and the binding, outside all nodes.
        runs: the runs with the profiler.
        executed: the graph that the runtime executes, as far as it shows it.
        overhead: microseconds that the profiler adds to each node; they are subtracted.
        file: the graph of a file that is no ONNX model, before fusions; values in `noted` have their ONNX names.
        noted: the ONNX values that our manifest in the file names.
    """

    ran_on: str
    plain: tuple[float, ...]
    profiled: tuple[float, ...]
    outside: float
    runs: tuple[Run, ...]
    executed: OperatorGraph
    overhead: float = 0.0
    notes: tuple[str, ...] = ()
    file: OperatorGraph | None = None
    noted: frozenset[str] = frozenset()
