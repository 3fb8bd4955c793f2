"""Shows the progress of a pipeline: a line per node for logs; on a terminal also a list of running nodes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxport.cli.error_output import show_on_stderr
from onnxport.cli.output import Output, clock
from onnxport.core.errors import printable
from onnxport.pipelines.executors.base import Unwatched

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnxport.reports.pipeline_report import NodeRecord


def progress_display(output: Output) -> Lines | None:
    """Return the display for this terminal; None for --quiet or --json."""
    if output.quiet or output.json:
        return None
    if sys.stderr.isatty() and not output.verbose and os.environ.get("TERM") != "dumb":
        return Live()
    return Lines(phases=output.verbose)


class Lines(Unwatched):
    """Prints `[3/12] digits/phone: made, proven, 1.2 s` when a node is done; its `phases` too."""

    def __init__(self, *, phases: bool = False, say: Callable[[str], None] = show_on_stderr) -> None:
        self._phases, self._say = phases, say
        self._total = self._settled = self._kept = self._failed = 0

    def begun(self, nodes: Sequence[object], jobs: int) -> None:
        self._total = len(nodes)

    def dashboard(self, link: str) -> None:
        self._say(f"the cluster's dashboard: {printable(link)}")

    def phase(self, node: str, step: str) -> None:
        if self._phases:
            self._say(printable(f"{node}: {step} ..."))

    def node(self, record: NodeRecord) -> None:
        self._settled += 1
        self._kept += record.status in ("made", "cached")
        self._failed += record.status == "failed"
        self._say(f"[{self._settled}/{self._total}] {printable(record.name)}: {printable(_describe(record))}")

    def close(self) -> None: ...

    def interrupted(self) -> None:
        """Print how much of the run is kept."""
        self.close()
        if self._kept:
            self._say(
                f"{self._kept} of {self._total} nodes are cached; the same command continues from there"
            )


def _describe(record: NodeRecord) -> str:
    if record.status == "not run":
        return f"not run, {record.why}"
    if record.failure is not None:
        return f"failed, {record.failure.message.splitlines()[0].rstrip(':')}"
    assert record.run is not None, "only an error leaves no report"
    verdict = record.run.artifacts[0].report.verdict
    took = f", {record.seconds:.1f} s" if record.status != "cached" else ""
    return f"{record.status}, {verdict}{took}"


@dataclass
class _RunningNode:
    """A node that is being made."""

    since: float = field(default_factory=time.monotonic)
    step: str = ""
    part: str = ""


_SHOWN = 12  # running nodes; a cluster may have hundreds


class Live(Lines):
    """The lines, and below them the running nodes with their steps and times."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        console = Console(stderr=True)
        super().__init__(say=lambda line: console.print(line, markup=False, highlight=False))
        self._at_work: dict[str, _RunningNode] = {}
        self._began: float | None = None  # when the first node started
        self._made, self._last = 0, 0.0  # number of made nodes, and the time of the last
        self._display = RichLive(
            get_renderable=self._render, console=console, transient=True, refresh_per_second=8
        )

    def begun(self, nodes: Sequence[object], jobs: int) -> None:
        super().begun(nodes, jobs)
        self._display.start()

    def started(self, node: str) -> None:
        self._began = self._began or time.monotonic()
        self._at_work[node] = _RunningNode()

    def phase(self, node: str, step: str) -> None:
        if node in self._at_work:
            self._at_work[node].step, self._at_work[node].part = step, ""

    def progressed(self, node: str, step: str, done: int, total: int) -> None:
        if node in self._at_work:
            self._at_work[node].part = f"{done} of {total}"

    def node(self, record: NodeRecord) -> None:
        if self._at_work.pop(record.name, None) is not None:
            self._made, self._last = self._made + 1, time.monotonic()
        super().node(record)
        self._display.refresh()

    def close(self) -> None:
        self._display.stop()

    def _render(self) -> RenderableType:
        """Render the display; called by its own thread."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = time.monotonic()
        table = Table.grid(padding=(0, 2))
        working = sorted(self._at_work.copy().items(), key=lambda each: each[1].since)  # the slowest first
        for name, work in working[:_SHOWN]:
            doing = Text(f"{work.step} {work.part}".strip(), style="dim")
            table.add_row(Text(printable(name)), doing, Text(clock(now - work.since)))
        if len(working) > _SHOWN:
            table.add_row(Text(f"and {len(working) - _SHOWN:,} more", style="dim"))
        failed = f", {self._failed:,} failed" if self._failed else ""
        return Group(
            table, Text(f"{self._settled:,} of {self._total:,}{failed}{self._left(now)}", style="bold")
        )

    def _left(self, now: float) -> str:
        """Estimate the time left from the pace of the made nodes."""
        if not self._made or self._began is None:
            return ""
        pace = (self._last - self._began) / self._made
        left = pace * (self._total - self._settled) - (now - self._last)
        return f", about {clock(left)} left" if left > 0 else ""
