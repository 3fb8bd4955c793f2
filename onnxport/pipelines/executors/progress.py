"""The progress of a run: what a display receives, and how a running task reports to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxport.pipelines.config.pipeline import Node
from onnxport.reports.pipeline_report import NodeRecord


class Watcher(Protocol):
    """Receives the progress of a run, from one thread at a time."""

    def begun(self, nodes: Sequence[Node], jobs: int) -> None:
        """The run has begun: it needs `nodes`, at most `jobs` of them at a time."""
        ...

    def started(self, node: str) -> None:
        """The node is being made."""
        ...

    def phase(self, node: str, step: str) -> None: ...

    def progressed(self, node: str, step: str, done: int, total: int) -> None: ...

    def node(self, record: NodeRecord) -> None:
        """A node is done, came from the cache, failed or will not run."""
        ...


class Unwatched:
    """Shows nothing."""

    def begun(self, nodes: Sequence[Node], jobs: int) -> None: ...

    def started(self, node: str) -> None: ...

    def phase(self, node: str, step: str) -> None: ...

    def progressed(self, node: str, step: str, done: int, total: int) -> None: ...

    def node(self, record: NodeRecord) -> None: ...


@dataclass(frozen=True)
class Phases:
    """A Progress that reports the phases of `node` to a watcher."""

    watcher: Watcher
    node: str

    def started(self, step: str) -> None:
        self.watcher.phase(self.node, step)

    def progressed(self, step: str, done: int, total: int) -> None:
        self.watcher.progressed(self.node, step, done, total)

    def finished(self, step: str, seconds: float) -> None: ...
