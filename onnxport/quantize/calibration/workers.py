"""Calibration in several processes, each with its own session; a shard that kills one moves to another."""

from __future__ import annotations

import select
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from onnxport.core.child_process import DEFAULT_TIMEOUT, Child, ChildDied
from onnxport.core.resources import Closing
from onnxport.quantize.calibration.shards import Item, Observed, Shard, Task, split_into_shards
from onnxport.runtimes.custom_libraries import writable

# So many processes may die on one shard before it is held to be what kills them.
_DEATHS = 3
_BEGINNING: Shard = ()  # what a process does first


class Workers(Closing):
    """`jobs` processes for one task, whose models are written."""

    def __init__(self, task: Task, jobs: int) -> None:
        self._task = task
        self._busy: dict[Child, Shard] = {}
        self._deaths: Counter[Shard] = Counter()
        self._jobs = jobs
        for _ in range(jobs):
            self._start()

    def observed(self, items: Sequence[Item]) -> Iterator[tuple[Shard, Observed]]:
        """Observe `items` shard by shard; yield results in the order in which they finish.

        Raises:
            InputError: see Bench.observe.
            MachineError: one shard killed several processes, or a process hangs.
        """
        left = deque(split_into_shards(items, self._jobs))
        while left or any(self._busy.values()):
            child = self._first_done()
            shard = self._busy.pop(child)
            try:
                seen: Observed = child.answer()
            except ChildDied as death:
                self._replace(child, shard, left, death)
                continue
            self._hand_next(child, left)  # before what was seen is merged: it has something to do meanwhile
            if shard:
                yield shard, seen

    def close(self) -> None:
        """End the processes."""
        for child in self._busy:
            child.close()
        self._busy = {}

    def _start(self) -> None:
        child = Child(
            "onnxport.quantize.calibration.shards:Bench",
            purpose="the process that calibrates",
            patience="give it smaller samples",
            writes=writable(),
        )
        self._busy[child] = _BEGINNING
        child.ask("begin", self._task)

    def _first_done(self) -> Child:
        """Return a process that answered or died; after a long wait any, whose answer is an error then."""
        ready, _, _ = select.select(list(self._busy), [], [], DEFAULT_TIMEOUT)
        return next(iter(ready or self._busy))

    def _hand_next(self, child: Child, left: deque[Shard]) -> None:
        if not left:
            child.close()
            return
        shard = left.popleft()
        try:
            child.ask("observed", shard)
        except ChildDied as death:
            self._replace(child, shard, left, death)
        else:
            self._busy[child] = shard

    def _replace(self, child: Child, shard: Shard, left: deque[Shard], death: ChildDied) -> None:
        """Start another process for a dead one's shard."""
        child.close()
        self._deaths[shard] += 1
        if self._deaths[shard] == _DEATHS:
            raise death
        if shard:
            left.appendleft(shard)
        self._start()
