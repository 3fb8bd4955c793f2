"""Split a folder of samples into those for calibration and those held out for evaluation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from onnxport.formats.artifact import TensorSpec
from onnxport.samples.preprocessing import Preprocessing
from onnxport.samples.readers import SampleFile, find_samples

EVERYTHING = 10**9  # more files than any folder has
FEWEST = 10  # samples; of fewer, calibration uses all
_EVERY = 5  # one of five is held out
_MOST_HELD_OUT = 20


def held_back(files: Sequence[SampleFile]) -> tuple[SampleFile, ...]:
    """Return the samples that calibration does not see: at most 20, evenly spaced; none of fewer than ten."""
    return tuple(files[place] for place in _held_out(len(files)))


def _held_out(count: int) -> tuple[int, ...]:
    """Return the indices of the held-out samples, evenly spaced: folders are often sorted by class."""
    if count < FEWEST:
        return ()
    chosen = min(count // _EVERY, _MOST_HELD_OUT)
    return tuple((2 * number + 1) * count // (2 * chosen) for number in range(chosen))


@dataclass(frozen=True)
class Parts:
    """The samples of a folder, in its order.

    Attributes:
        calibration: samples for calibration.
        held_back: samples to score choices on; empty where there are too few, or none are wanted.
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
        optional: frozenset[str] = frozenset(),
    ) -> Self:
        """Split the samples of `folder`.

        Args:
            limit: most calibration samples; of more, this many are drawn with `seed`.
            holds_back: whether to hold samples out.
            optional: states, which a file may lack.

        Raises:
            InputError, UsageError: see find_samples.
        """
        files = find_samples(folder, inputs, EVERYTHING, settings=settings, optional=optional)
        held_out = frozenset(_held_out(len(files)) if holds_back else ())
        rest = [place for place in range(len(files)) if place not in held_out]
        if len(rest) > limit:
            rest = sorted(random.Random(seed).sample(rest, limit))
        return cls(tuple(files[place] for place in rest), tuple(files[place] for place in sorted(held_out)))
