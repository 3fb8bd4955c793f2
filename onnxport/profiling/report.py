"""A profile, as data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.tabular import Tabular

SCHEMA_VERSION: Literal[1] = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class NodeTime(_Record):
    """One node of the graph that the runtime executes, which may differ from the file's.

    Attributes:
        name, op: the runtime's names.
        ms: milliseconds in one run, the mean over the faster half of the runs.
        share: of the sum of all nodes, 0 to 1.
        provider: the execution provider or delegate that ran it.
        sources: names of the ONNX nodes that it computes; empty if unknown.
        source_ops: their operators, in the same order.
    """

    name: str
    op: str
    ms: float
    share: float
    provider: str = ""
    sources: tuple[str, ...] = ()
    source_ops: tuple[str, ...] = ()


class Group(_Record):
    """Nodes with something in common, such as their operator."""

    name: str
    count: int
    ms: float
    share: float


class ProfileReport(Tabular, _Record):
    """Where the time of a run goes.

    Attributes:
        inputs: the origin of the inputs.
        run_ms: of a run without the profiler in the same process, the mean over the faster half.
        profiled_ms: of a run with the profiler.
        outside_ms: what session and binding take in a run, besides the nodes.
        nodes_ms: the sum of the nodes' times.
        nodes: in the order of execution.
        by_op, by_source: groups by the runtime's operator and by the ONNX node that they came from, slowest first.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    command: str
    model: str
    format: str
    ran_on: str
    threads: int
    runs: int
    inputs: str = ""
    run_ms: float
    profiled_ms: float
    outside_ms: float = 0.0
    nodes_ms: float
    nodes: tuple[NodeTime, ...]
    by_op: tuple[Group, ...]
    by_source: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    _about: ClassVar = ("model", "ran_on", "run_ms")
    _table: ClassVar = "nodes"
    _columns: ClassVar = ("name", "op", "ms", "share", "provider", "sources")
