"""A folder of samples in two parts: those that a model is calibrated on, and those held back to judge it on."""

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
FEWEST = 10  # of fewer, calibration can spare none
_EVERY = 5  # one of so many is held back
_MOST_HELD_BACK = 20


def held_back(files: Sequence[SampleFile]) -> tuple[SampleFile, ...]:
    """Those that calibration leaves out, at most 20 from all over the folder; none of fewer than ten."""
    return tuple(files[place] for place in _spared(len(files)))


def _spared(count: int) -> tuple[int, ...]:
    """The places of those that are held back: folders are often sorted by class, so from every part of them."""
    if count < FEWEST:
        return ()
    spared = min(count // _EVERY, _MOST_HELD_BACK)
    return tuple((2 * number + 1) * count // (2 * spared) for number in range(spared))


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
        optional: frozenset[str] = frozenset(),
    ) -> Self:
        """Divides what lies in `folder`.

        Args:
            limit: the most to calibrate on; of more, as many are drawn with `seed`.
            holds_back: whether any are wanted that calibration does not see.
            optional: states, which a file may lack.

        Raises:
            InputError, UsageError: see find_samples.
        """
        files = find_samples(folder, inputs, EVERYTHING, settings=settings, optional=optional)
        spared = frozenset(_spared(len(files)) if holds_back else ())
        rest = [place for place in range(len(files)) if place not in spared]
        if len(rest) > limit:
            rest = sorted(random.Random(seed).sample(rest, limit))
        return cls(tuple(files[place] for place in rest), tuple(files[place] for place in sorted(spared)))
