"""What LiteRT's profiler tells of a run: events of LiteRT's own kernels and of XNNPACK's operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# LiteRtProfilerEventType.
KERNEL, DELEGATED = 1 << 1, 1 << 3
_DEFAULT = 1
_INVOCATION = "Invoke"
# TFLite operators whose time holds that of their bodies.
HOLDERS = frozenset(("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE", "StablehloComposite"))


@dataclass(frozen=True)
class Event:
    """Attributes:
    start, elapsed: whole microseconds; a delegate's operators have no start.
    node: its number, in the subgraph `graph` or in what the delegate made of a part of it.
    """

    tag: str
    kind: int
    start: int
    elapsed: int
    node: int
    graph: int


@dataclass
class Step:
    """An operator's execution.

    Attributes:
        start, duration: microseconds; of a delegate's operators the start follows from the ones before.
        holder: the step in a body of which it is.
    """

    event: Event
    start: float
    duration: float
    holder: Step | None = None

    @property
    def own(self) -> float:
        """Microseconds that it computes itself. None of a loop's: the profiler asks for the memory in use at each turn
        (tflite/profiling/profile_buffer.cc), which takes longer than most bodies do."""
        return 0.0 if self.event.kind == KERNEL and self.event.tag in HOLDERS else self.duration


def invocation(events: Sequence[Event]) -> Event | None:
    """The run of the main graph."""
    found = [each for each in events if each.kind == _DEFAULT and each.tag == _INVOCATION]
    return max(found, key=lambda each: each.elapsed, default=None)


def steps(events: Sequence[Event]) -> list[Step]:
    """The executions of a run, in order."""
    return list(_steps(events))


def _steps(events: Sequence[Event]) -> Iterator[Step]:
    whole = invocation(events)
    now = float(whole.start) if whole is not None else 0.0
    holders: list[Step] = []
    for event in events:
        if event.kind not in (KERNEL, DELEGATED):
            continue
        if event.kind == KERNEL:
            now = float(event.start)
            # LiteRT cuts off two moments, whose difference is right on the average; XNNPACK cuts off the difference.
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
        yield step
