"""A part of a calibration: some samples and the observers of some tensors; runs in any process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.quantize.calibration.observers import NotFiniteError, Observer
from onnxport.quantize.calibration.session import TappedSession, write_tapped
from onnxport.samples.readers import SampleFile

Observed = dict[str, tuple[Observer, ...]]
Taps = Mapping[str, Sequence[Observer]]


@dataclass(frozen=True)
class Task:
    """A whole calibration."""

    path: Path  # the settled model; files are written beside it
    # The taps in groups that are run by themselves, for want of memory for all; each with the observers
    # that have seen nothing.
    parts: tuple[Taps, ...]
    files: Mapping[int, SampleFile]  # the samples, by their places

    @property
    def items(self) -> list[Item]:
        """Return every sample once for every part, part after part."""
        return [(part, number) for part in range(len(self.parts)) for number in self.files]

    def fresh(self, part: int) -> Observed:
        """Return new observers of a part."""
        return {name: tuple(map(copy.deepcopy, each)) for name, each in self.parts[part].items()}

    def write(self) -> None:
        """Write the models that show the parts' taps."""
        everything = [name for part in range(len(self.parts)) for name in self.computed(part)]
        for part in range(len(self.parts)):
            own = self.computed(part)
            write_tapped(
                self.path, own, self.tapped(part), others=[each for each in everything if each not in own]
            )

    def tapped(self, part: int) -> Path:
        """Return the model that shows the taps of a part."""
        return self.path.with_name(f"{self.path.stem}.taps{part}.onnx")

    def computed(self, part: int) -> list[str]:
        """Return the taps of a part that are not inputs."""
        inputs = {spec.name for spec in next(iter(self.files.values())).inputs}
        return [name for name in self.parts[part] if name not in inputs]


# A sample, by its place among all, in a part.
Item = tuple[int, int]
# Items that are one answer of a process, all of one part. More of them per process even out how long each takes, and
# less is lost with a process.
Shard = tuple[Item, ...]
_SHARDS_PER_JOB, _MOST_SAMPLES = 4, 16


def split_into_shards(items: Sequence[Item], jobs: int) -> list[Shard]:
    """Split items into shards, each of one part."""
    size = max(1, min(_MOST_SAMPLES, len(items) // (jobs * _SHARDS_PER_JOB)))
    parts: dict[int, list[Item]] = {}
    for item in items:
        parts.setdefault(item[0], []).append(item)
    return [
        tuple(part[start : start + size]) for part in parts.values() for start in range(0, len(part), size)
    ]


class Bench(Closing):
    """Runs shards of a task; keeps one session open. `core.child_process.Child` can serve it."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._session: TappedSession | None = None
        self._part = -1

    def begin(self, task: Task) -> None:
        """Switch to `task`, whose models are written; an open session of the same file is kept."""
        if self._task is None or task.path != self._task.path:
            self.close()
        self._task = task

    def observed(self, items: Sequence[Item]) -> Observed:
        """Observe `items`, which are of one part, with new observers."""
        assert self._task is not None, "begin comes first"
        observed = self._task.fresh(items[0][0])
        for item in items:
            self.observe(item, observed)
        return observed

    def observe(
        self, item: Item, observed: Observed, whole: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Show a sample to the observers of its part, inside `whole`, which keeps a sample from being half seen.

        Raises InputError if it cannot be read, does not fit the model, or NaN or infinity occurs.
        """
        assert self._task is not None, "begin comes first"
        part, number = item
        file = self._task.files[number]
        session = self._session_of(part)
        feeds = file.load().feeds
        _check_finite(feeds, file.label)
        values = dict(feeds) | dict(zip(session.taps, session.run(feeds, file.label), strict=True))
        with whole():
            for name, observers in observed.items():
                _show(values[name], number, observers, name, file.label)

    def _session_of(self, part: int) -> TappedSession:
        assert self._task is not None, "begin comes first"
        if self._session is None or part != self._part:
            self.close()
            task = self._task
            self._session = TappedSession(task.tapped(part), task.computed(part), task.path.name)
            self._part = part
        return self._session

    def close(self) -> None:
        """Free the session."""
        if self._session is not None:
            self._session.close()
        self._session, self._part = None, -1


def _check_finite(feeds: Mapping[str, Array], label: str) -> None:
    for name, array in feeds.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(
                f"input {name!r} of the sample {label} holds NaN or infinity", fix="mend or remove the sample"
            )


def _show(values: Array, number: int, observers: Sequence[Observer], name: str, label: str) -> None:
    for observer in observers:
        try:
            observer.observe(values, number)
        except NotFiniteError as error:
            raise InputError(
                f"tensor {name!r} holds {error} on the sample {label}",
                fix="leave the node that makes it in float with --exclude, or remove the sample",
            ) from error
