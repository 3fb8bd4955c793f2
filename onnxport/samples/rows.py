"""A file of many samples, stacked along the first axis of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec

Read = Callable[[], Mapping[str, Array]]


def split_rows(path: Path, read: Read, required: Sequence[TensorSpec], most: int = 1) -> tuple[Rows, ...]:
    """Return a reader for each set of inputs in the file: `most` rows where the model's batch is open, else a batch.

    Return () where the file is one set: its arrays have different numbers of rows, or no more than a batch. The
    remainder of a fixed batch size is not read. The file stays in memory while its rows are read.

    Args:
        read: returns the arrays of the file; hashable, equal for equal files.
        required: the inputs that the file must have.
    """
    batches = {spec.shape[0] if spec.shape else None for spec in required}
    arrays = _read_file(read, path.stat().st_mtime_ns)
    stacked = [arrays.get(spec.name) for spec in required]
    counts = {array.shape[0] if array is not None and array.ndim else 0 for array in stacked}
    batch = next(iter(batches), None)
    is_fixed = isinstance(batch, int)
    rows = batch if isinstance(batch, int) else most
    if len(batches) != 1 or len(counts) != 1 or not required or max(counts) <= rows:
        return ()
    names = tuple(spec.name for spec in required)
    count = max(counts)
    starts = range(0, count - rows + 1 if is_fixed else count, rows)
    return tuple(Rows(path, read, names, start, min(start + rows, count)) for start in starts)


@dataclass(frozen=True)
class Rows:
    """A reader of rows `start` to `stop` of the arrays `names`, without others such as a state."""

    path: Path
    read: Read
    names: tuple[str, ...]
    start: int
    stop: int

    def __call__(self) -> Mapping[str, Array]:
        arrays = _read_file(self.read, self.path.stat().st_mtime_ns)
        return {name: arrays[name][self.start : self.stop] for name in self.names}

    @property
    def span(self) -> str:
        """The rows for a label: "7", or "8-15" for several."""
        return str(self.start) if self.stop == self.start + 1 else f"{self.start}-{self.stop - 1}"


@lru_cache(maxsize=1)
def _read_file(read: Read, changed: int) -> Mapping[str, Array]:
    """Return the file's arrays; the last file is cached, because its rows are read one after the other."""
    return read()
