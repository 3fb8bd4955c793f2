"""An observer of an output: it keeps what the float model answers on some samples."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from onnxport.core.arrays import Array
from onnxport.quantize.calibration.observers import stride_of

# Elements of an output, at most, that are kept of a sample: they tell the error of all.
_ELEMENTS = 1 << 18


class Answers:
    """Keeps a part of one tensor on each of some samples.

    Attributes:
        parts: float32 of each sample's number; `part_of` its tensor.
    """

    def __init__(self, samples: Collection[int]) -> None:
        self.samples = tuple(sorted(samples))
        self.parts: dict[int, Array] = {}

    def observe(self, values: Array, sample: int) -> None:
        """See Observer."""
        if sample in self.samples:
            self.parts[sample] = np.array(part_of(values), np.float32)

    def merge(self, other: Answers) -> None:
        """See Observer."""
        self.parts = dict(sorted((self.parts | other.parts).items()))


def part_of(values: Array) -> Array:
    """Return elements of an array at even distances, flat; all where there are few."""
    flat = values.reshape(-1)
    return flat[:: stride_of(max(flat.size, 1), _ELEMENTS)]
