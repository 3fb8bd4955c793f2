"""Who shows how a run goes, and the way there from a task that is performed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onnxport.pipelines.config.pipeline import Node
from onnxport.reports.pipeline_report import NodeRecord


class Watcher(Protocol):
    """Is told how a run goes, by one thread at a time."""

    def begun(self, nodes: Sequence[Node], jobs: int) -> None:
        """These are to be settled, at most `jobs` of them at a time."""
        ...

    def started(self, node: str) -> None:
        """It is being made now."""
        ...

    def phase(self, node: str, step: str) -> None: ...

    def progressed(self, node: str, step: str, done: int, total: int) -> None: ...

    def node(self, record: NodeRecord) -> None:
        """One is done, came from the cache, failed or will not run."""
        ...


class Unwatched:
    """Nobody."""

    def begun(self, nodes: Sequence[Node], jobs: int) -> None: ...

    def started(self, node: str) -> None: ...

    def phase(self, node: str, step: str) -> None: ...

    def progressed(self, node: str, step: str, done: int, total: int) -> None: ...

    def node(self, record: NodeRecord) -> None: ...


@dataclass(frozen=True)
class Phases:
    """A clock.Progress that tells the phases of `node`."""

    watcher: Watcher
    node: str

    def started(self, step: str) -> None:
        self.watcher.phase(self.node, step)

    def progressed(self, step: str, done: int, total: int) -> None:
        self.watcher.progressed(self.node, step, done, total)

    def finished(self, step: str, seconds: float) -> None: ...
