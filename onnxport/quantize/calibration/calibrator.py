"""One pass of the samples through the model: every observer sees its tensor of every sample."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from onnxport.core.memory import bytes_of
from onnxport.quantize.calibration.cache import Entry, State, key_of
from onnxport.quantize.calibration.cluster import Cluster
from onnxport.quantize.calibration.memory import split_taps
from onnxport.quantize.calibration.shards import Bench, Item, Observed, Taps, Task
from onnxport.quantize.calibration.workers import Workers
from onnxport.quantize.contract import Watch
from onnxport.quantize.params import QuantizeParams
from onnxport.samples.readers import SampleFile

# Seconds of work that a kill, which leaves no time to keep anything, may cost.
_KEPT_EVERY = 30.0


@dataclass(frozen=True)
class Resources:
    """The resources of a calibration; none changes the result."""

    jobs: int = 1  # processes; with one the samples are run in this process
    # Bytes that all of them may take together, as far as that is in our hand (memory.py); None for no
    # limit.
    memory: int | None = None
    caches: bool = False  # whether what was computed is kept, and found again
    scheduler: str | None = None  # address of a Dask scheduler whose workers do it instead

    @classmethod
    def of(cls, params: QuantizeParams) -> Self:
        """Read the resources from the user's options."""
        memory = None if params.memory_limit is None else bytes_of(params.memory_limit)
        return cls(params.jobs, memory, params.cache, params.scheduler)


def calibrate(
    path: Path, taps: Taps, files: Sequence[SampleFile], *, watch: Watch, resources: Resources = Resources()
) -> Observed:
    """Observe tensors on all samples: the same bits whatever the resources.

    Samples are read and run one at a time, so memory does not grow with their number; they may differ in size where the
    inputs are open. After a Ctrl-C or a kill the same call continues.

    Args:
        path: the float graph; files are written beside it.
        taps: tensor or graph input to new observers; these are copied.
        files: the samples; at least one.

    Raises:
        InputError: a sample is unreadable or does not fit the model, or NaN or infinity occurs.
        UsageError: `memory` does not suffice.
        MachineError: processes die, whichever sample they get.
    """
    parts, jobs = split_taps(path, taps, files[0], resources.memory, resources.jobs)
    task = Task(path, parts, dict(enumerate(files)))
    key = key_of(task) if resources.caches else None
    entry = Entry(key) if key is not None else None
    state = (entry.load() if entry else None) or _nothing(task)
    left = [item for item in task.items if item not in state.done]
    if left:
        task.write()
        kept_at = time.monotonic()
        try:
            for _ in _progress(task, left, state, _workers(task, min(jobs, len(left)), resources)):
                watch.progress(len(state.done) // len(parts), len(files))
                if entry and time.monotonic() > kept_at + _KEPT_EVERY:
                    entry.keep(state)
                    kept_at = time.monotonic()
        except KeyboardInterrupt:
            if entry:
                entry.keep(state)
            raise
        if entry:
            entry.keep(state)
    return state.observed


def _nothing(task: Task) -> State:
    observed = {name: each for part in range(len(task.parts)) for name, each in task.fresh(part).items()}
    return State(set(), observed)


def _workers(task: Task, jobs: int, resources: Resources) -> Cluster | Workers | None:
    """Start the worker processes or cluster; None to calibrate in this process, which a memory limit excludes."""
    if resources.scheduler is not None:
        return Cluster(task, resources.scheduler)
    return Workers(task, jobs) if jobs > 1 or resources.memory is not None else None


def _progress(
    task: Task, left: Sequence[Item], state: State, workers: Cluster | Workers | None
) -> Iterator[None]:
    """Do the remaining items; `state` covers whole samples at every step."""
    if workers is None:
        with Bench() as bench:
            bench.begin(task)
            for item in left:
                part = {name: state.observed[name] for name in task.parts[item[0]]}
                bench.observe(item, part, partial(_count_when_done, item, state))
                yield
        return
    with workers:
        for shard, seen in workers.observed(left):
            with _delay_interrupt():
                for name, observers in seen.items():
                    for own, other in zip(state.observed[name], observers, strict=True):
                        own.merge(other)
                state.done.update(shard)
            yield


@contextmanager
def _count_when_done(item: Item, state: State) -> Iterator[None]:
    """Count an item as done when all observers have seen it."""
    with _delay_interrupt():
        yield
        state.done.add(item)


@contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Delay Ctrl-C inside the block: an observer that saw half a sample is useless."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals interrupt the main thread alone
        return
    arrived: list[int] = []
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in kept:
            signal.signal(number, lambda number, _: arrived.append(number))
        yield
    finally:
        for number, handler in kept.items():
            if handler is not None:
                signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
