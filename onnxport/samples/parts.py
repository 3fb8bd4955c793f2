"""A folder of samples in two parts: those that a model is calibrated on, and those held back to judge it on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from onnxport.artifact import TensorSpec
from onnxport.samples.preprocessing import Preprocessing
from onnxport.samples.readers import SampleFile, find_samples

EVERYTHING = 10**9  # more files than any folder has
# Every fifth is held back, where there are ten: of fewer, calibration can spare none.
_EVERY = 5
_FEWEST = 10
_MOST_HELD_BACK = 20


def held_back(files: Sequence[SampleFile]) -> tuple[SampleFile, ...]:
    """Those that calibration leaves out, at most 20; none of fewer than ten."""
    return tuple(files[_EVERY - 1 :: _EVERY][:_MOST_HELD_BACK]) if len(files) >= _FEWEST else ()


@dataclass(frozen=True)
class Parts:
    """The samples of a folder, in its order.

    Attributes:
        calibration: what to calibrate on.
        held_back: what to score choices on; empty where there are too few, or where none were wanted.
    """

    calibration: tuple[SampleFile, ...]
    held_back: tuple[SampleFile, ...]

    @classmethod
    def of(
        cls,
        folder: Path,
        inputs: Sequence[TensorSpec],
        *,
        settings: Preprocessing,
        limit: int,
        seed: int,
        holds_back: bool,
    ) -> Self:
        """Divides what lies in `folder`.

        Args:
            limit: the most to calibrate on; of more, as many are drawn with `seed`.
            holds_back: whether any are wanted that calibration does not see.

        Raises:
            InputError, UsageError: see find_samples.
        """
        files = find_samples(folder, inputs, EVERYTHING, settings=settings)
        spared = held_back(files) if holds_back else ()
        rest = [file for file in files if file not in spared]
        if len(rest) > limit:
            chosen = sorted(random.Random(seed).sample(range(len(rest)), limit))
            rest = [rest[number] for number in chosen]
        return cls(tuple(rest), spared)
