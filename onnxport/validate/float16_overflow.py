"""Generated inputs on which float16 overflows and the source does not.

Such an artefact is right: it computes what its source computes in float16. Yet whether a user's inputs are as large as
these, only they know: audio is -1 to 1 to one network, and -32768 to 32767 to another.
"""

from __future__ import annotations

import math

from onnxport.core.arrays import Feeds
from onnxport.samples.generator import image_axes
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.metrics import scale_of
from onnxport.validate.noise_runs import Answers
from onnxport.validate.undefined_answers import is_finite

_NOTE = (
    "float16 overflows on inputs of up to {:.0f}, {}, where the source does not: if yours are as large, as 16-bit "
    "audio is, give some with --inputs DIR, and what overflows on them stays float32"
)


class Overflows:
    """The set of the smallest inputs on which it does."""

    def __init__(self) -> None:
        self._found: tuple[float, str] | None = None

    def add(self, answered: AnsweredSet, feeds: Feeds, answers: Answers, rounded: Answers) -> None:
        """Count one set.

        Args:
            answers: the source's.
            rounded: those of the source with roundings to float16.
        """
        numbers = [
            each for each in feeds.values() if each.dtype.kind == "f" and image_axes(each.shape) is None
        ]
        if answered.source == "generated" and numbers and is_finite(answers) and not is_finite(rounded):
            largest = max(map(scale_of, numbers))
            self._found = min(self._found or (math.inf, ""), (largest, answered.label))

    @property
    def notes(self) -> tuple[str, ...]:
        """The report's note on it."""
        return () if self._found is None else (_NOTE.format(*self._found),)
