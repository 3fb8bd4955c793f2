"""Schedules a run: takes nodes from the cache or has them made, and delivers what passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError
from onnxport.core.packing import Packed
from onnxport.formats.artifact import SUFFIXES, Artifact
from onnxport.pipelines.cache import Cache, Entry
from onnxport.pipelines.config.pipeline import Cell, Node, Pipeline
from onnxport.pipelines.environment import describe
from onnxport.pipelines.execution.delivery import deliver_cell
from onnxport.pipelines.execution.latency import Timings
from onnxport.pipelines.executors.base import Executor, Result, Watcher
from onnxport.pipelines.executors.task import Task
from onnxport.pipelines.graph.cache_keys import Inputs, inputs_of, key_of
from onnxport.pipelines.graph.digests import digest_of_model, with_external_data
from onnxport.pipelines.lock.enforcement import LockGuard
from onnxport.pipelines.runner.report import relocate
from onnxport.reports.pipeline_report import (
    CellRecord,
    FailureRecord,
    NodeRecord,
    PipelineReport,
    Status,
    exit_code_of,
)
from onnxport.reports.run_report import RunReport

_AHEAD = 64  # nodes at the executor at a time, at least: results are taken while others are still to be sent


@dataclass
class Scheduler:
    """One run of `pipeline`.

    Records and entries stay to the end, of hundreds of nodes: their reports are packed until then.
    """

    pipeline: Pipeline
    cache: Cache
    executor: Executor
    explain: Callable[[Exception], FailureRecord]
    watcher: Watcher
    guard: LockGuard
    jobs: int = 1
    timings: Timings = field(default_factory=Timings)
    records: dict[str, Packed[NodeRecord]] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    _inputs: dict[str, tuple[str, Inputs]] = field(default_factory=dict)
    _locked: dict[str, str] = field(default_factory=dict)

    def run(self, cells: Sequence[Cell], arguments: Sequence[str] = ()) -> PipelineReport:
        """Make `cells` and the nodes that they need, and deliver those that passed."""
        started = time.perf_counter()
        wanted = {id(node) for cell in cells for node in cell.node.chain}
        waiting = [node for node in self.pipeline.nodes if id(node) in wanted]
        self.watcher.begun(waiting, self.jobs)
        running: dict[str, Node] = {}
        ahead = max(_AHEAD, 4 * self.jobs)
        while waiting or running:
            waiting = [node for node in waiting if len(running) >= ahead or not self._start(node, running)]
            if running:
                result = self.executor.next()
                self._finish(running.pop(result.task.node), result)
        made = tuple(self._deliver(cell) for cell in cells)
        records = tuple(self.records[node.name].open() for node in self.pipeline.nodes if id(node) in wanted)
        return PipelineReport(
            arguments=tuple(arguments),
            file=str(self.pipeline.path),
            nodes=records,
            cells=made,
            seconds=round(time.perf_counter() - started, 4),
            environment=describe(("onnxruntime", "numpy")),
            frozen=self.guard.is_frozen,
            exit_code=exit_code_of(records, made),
        )

    def _start(self, node: Node, running: dict[str, Node]) -> bool:
        """Take a node from the cache or submit it; return False if it must wait for another node."""
        before = node.chain[:-1]
        lost = next(
            (each for each in before if each.name in self.records and each.name not in self.entries), None
        )
        if lost is not None:
            self._record(node, "not run", why=f"{lost.name} failed")
            return True
        if any(each.name not in self.entries for each in before):
            return False
        try:
            key, inputs = self._key(node)
            entry = self.cache.get(key)
            if entry is not None:
                self.entries[node.name] = entry
                self._record(node, "cached", key=key, run=self._relocate(node, entry.report))
                return True
            self._inputs[node.name] = key, inputs
            self.executor.submit(self._task(node))
        except Exception as error:  # a bug too: the other nodes' work must not be lost
            self._record(node, "failed", failure=self.explain(error))
            return True
        running[node.name] = node
        return True

    def _finish(self, node: Node, result: Result) -> None:
        key, inputs = self._inputs.pop(node.name)
        facts: dict[str, Any] = {"key": key, "seconds": round(result.seconds, 4)}
        try:
            if result.report is None:
                assert result.failure is not None
                raise result.failure
            status: Status = "made" if result.report.passed else "failed"
            report = result.report
            if report.passed:
                if self._key(node)[0] != key:
                    what = f"the inputs of {node.name} changed while it was made"
                    raise InputError(what, fix="run again when it is done")
                entry = self.cache.put(key, result.task.room, report, inputs, node.name)
                self.entries[node.name], report = entry, entry.report
            self._record(node, status, **facts, run=self._relocate(node, report))
        except Exception as error:
            self._record(node, "failed", **facts, failure=self.explain(error))

    def _key(self, node: Node) -> tuple[str, Inputs]:
        _, digest = self._origin(node)
        made = tuple(self.entries[each.name].digest for each in node.chain[:-1])
        inputs = inputs_of(node, digest, made)
        return key_of(inputs), inputs

    def _origin(self, node: Node) -> tuple[Artifact, str]:
        """Return what products are proven against, with its digest: the model, or its ONNX export."""
        if node.exported is not None:
            entry = self.entries[node.exported.name]
            return entry.artifact, entry.digest
        origin = node.model.origin
        found = with_external_data(origin) if isinstance(origin, Artifact) else Artifact(origin.path, "onnx")
        return found, digest_of_model(origin)

    def _task(self, node: Node) -> Task:
        is_export = node.step is None
        made = [
            replace(each.step, made=self.entries[each.name].artifact)
            for each in node.chain[:-1]
            if each.step is not None
        ]
        return Task(
            node=node.name,
            origin=node.model.origin if is_export else self._origin(node)[0],
            steps=() if node.step is None else (*made, node.step),
            export=node.model.export if is_export else None,
            validation=node.validation,
            latency=node.latency,
            room=self.cache.room(node.name),
            diagnose=self.pipeline.diagnose,
            folder=self.pipeline.folder,
            versions=self._inputs[node.name][1]["versions"],
            resources=node.resources,
        )

    def _record(self, node: Node, status: Status, **facts: Any) -> None:
        record = NodeRecord(
            name=node.name,
            model=node.model.name,
            stage=node.stage,
            after=node.after.name if node.after else "",
            status=status,
            at=node.line and node.line.record,
            **facts,
        )
        self.records[node.name] = Packed(record)
        self.watcher.node(record)

    def _deliver(self, cell: Cell) -> CellRecord:
        chain = [self.records[node.name].open() for node in cell.node.chain]
        entry = self.entries.get(cell.node.name)
        worth = None
        if entry is not None and cell.limits.is_timed:  # nothing else runs at this time
            worth = partial(self.timings.of, self._origin(cell.node)[0], entry.artifact, cell.node.validation)
        found = deliver_cell(cell, chain, entry, worth, self.explain, self._lock)
        if entry is not None and found.path is not None:
            report = self._relocate(cell.node, entry.report, cell.output, self._locked[cell.name])
            self.records[cell.node.name] = Packed(chain[-1].model_copy(update={"run": report}))
        return found

    def _lock(self, cell: Cell, artifact: Artifact) -> None:
        self._locked[cell.name] = self.guard.record(cell, artifact, self.entries).digest

    def _relocate(
        self, node: Node, report: RunReport, place: Path | None = None, digest: str | None = None
    ) -> RunReport:
        """Return a node's report with the user's paths; `place` is where the product was delivered, if it was."""
        origin = node.model.origin.path if node.exported is None else _name_of(node.exported)
        return relocate(report, place or _name_of(node), origin, is_there=place is not None, digest=digest)


def _name_of(node: Node) -> Path:
    """Return the name of a product that is not delivered."""
    gives = "onnx" if node.step is None else node.step.stage.gives
    return Path(f"{node.name}{SUFFIXES[gives]}")
