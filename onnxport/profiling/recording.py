"""What a profiled process hands over: times of runs, and who computed when in each."""

from __future__ import annotations

from dataclasses import dataclass

from onnxport.formats.graph import OperatorGraph


@dataclass(frozen=True)
class Span:
    """One execution of a node.

    Attributes:
        node: its place in `Recording.executed.walk()`; -1 for one that the graph does not have.
        name, op, provider: as the runtime calls them.
        start, duration: microseconds; `start` since some moment before the first run.
        own: `duration` without that of nodes in its body, and without what the profiler adds.
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
    """One profiled run: microseconds, and what was executed in it, in order."""

    start: float
    duration: float
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Recording:
    """Attributes:
    plain: seconds of each run without the profiler.
    profiled: seconds of each run with it, as the caller sees them.
    outside: microseconds that a run takes in which nothing is computed: in the session and the binding.
    runs: of those with the profiler.
    executed: what the runtime executes, as far as it shows that.
    overhead: microseconds that the profiler adds to each node, which are taken off.
    file: the nodes of a file that is no ONNX model, those that the runtime fused as well; their values are called as
        in the ONNX model as far as `noted` names them.
    noted: values of the ONNX model that a note in the file names.
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
