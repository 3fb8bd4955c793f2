"""Events of LiteRT's profiler: its own kernels and XNNPACK's operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# LiteRtProfilerEventType.
KERNEL, DELEGATED = 1 << 1, 1 << 3
_DEFAULT = 1
_INVOCATION = "Invoke"
# The time of these TFLite operators includes that of their bodies.
HOLDERS = frozenset(("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE", "StablehloComposite"))


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        start, elapsed: whole microseconds; a delegate's operators have no start.
        node: its number in the subgraph `graph`, or in the delegate's own graph of a partition.
    """

    tag: str
    kind: int
    start: int
    elapsed: int
    node: int
    graph: int


@dataclass
class Step:
    """One execution of an operator.

    Attributes:
        start, duration: microseconds; the start of a delegate's operator is the end of the one before.
        holder: the step whose body it is in.
    """

    event: Event
    start: float
    duration: float
    holder: Step | None = None

    @property
    def own(self) -> float:
        """Microseconds without those of its bodies.

        A loop has none: the profiler measures memory at each turn (tflite/profiling/profile_buffer.cc), which takes
        longer than most bodies.
        """
        return 0.0 if self.event.kind == KERNEL and self.event.tag in HOLDERS else self.duration


def invocation(events: Sequence[Event]) -> Event | None:
    """Return the event of the main graph's run."""
    found = [each for each in events if each.kind == _DEFAULT and each.tag == _INVOCATION]
    return max(found, key=lambda each: each.elapsed, default=None)


def steps(events: Sequence[Event]) -> list[Step]:
    """Return the executions of a run, in order."""
    run = invocation(events)
    now = float(run.start) if run is not None else 0.0
    holders: list[Step] = []
    found: list[Step] = []
    for event in events:
        if event.kind not in (KERNEL, DELEGATED):
            continue
        if event.kind == KERNEL:
            now = float(event.start)
            # LiteRT truncates two moments: their difference is right on average. XNNPACK truncates the difference.
            step = Step(event, now, float(event.elapsed))
        else:
            step = Step(event, now, event.elapsed + 0.5)
        while holders and step.start + step.duration > holders[-1].start + holders[-1].duration + 1:
            holders.pop()
        if holders:
            step.holder = holders[-1]
        if event.kind == KERNEL and event.tag in HOLDERS:
            holders.append(step)
        else:
            now += step.duration
        found.append(step)
    return found
