"""How many classes and detections a lower precision decides as the original does.

Class scores are rows of probabilities (none negative, sums of 1), or an output of two axes whose name says that it
holds scores. Their decision is the first class. A detection is an element above one half in what a Sigmoid gives; it is
lost where the candidate stays below a quarter. Boxes have no form that all detectors share: they are held to the floor
of every output.

A candidate is refused when fewer than nine in ten decisions are left and chance does not explain it: with so many
decisions, one that loses one in ten would lose as many in less than one of a hundred trials (binomial distribution).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.error_sums import looks_like_mask, sum_to_one

USEFUL = 0.9
_CHANCE = 0.01
_MANY = 1000  # decisions, from which on the normal distribution does
_FOUND, _STILL_FOUND = 0.5, 0.25
_SCORES = re.compile(r"logit|score|prob|class|pred|label|softmax", re.IGNORECASE)


@dataclass
class DecisionAgreement:
    """The decisions of one output.

    Attributes:
        name: of the output.
        is_sigmoid: whether a Sigmoid gives it.
        count, differing: decisions of the reference, and those that the candidate does not share.
        what: what they are called.
    """

    name: str
    is_sigmoid: bool = False
    count: int = 0
    differing: int = 0
    what: str = ""

    def add(self, reference: Array, candidate: Array) -> None:
        """Counts one set."""
        if reference.shape != candidate.shape or reference.dtype.kind != "f" or not reference.size:
            return
        if self._holds_scores(reference):
            self.what = "first class"
            differing = reference.argmax(axis=-1) != candidate.argmax(axis=-1)
            self.count += differing.size
            self.differing += int(differing.sum())
        elif self.is_sigmoid and reference.ndim > 1 and not looks_like_mask(reference):
            self.what = "detection"
            found = reference > _FOUND
            self.count += int(found.sum())
            self.differing += int((found & ~(candidate >= _STILL_FOUND)).sum())

    def _holds_scores(self, reference: Array) -> bool:
        if reference.ndim < 2 or reference.shape[-1] < 2:
            return False
        if sum_to_one(reference.reshape(-1, reference.shape[-1])):
            return True
        return reference.ndim == 2 and bool(_SCORES.search(self.name))

    @property
    def lost(self) -> str:
        """What is wrong, in words; empty where nine in ten decisions are left, or chance may explain it."""
        if _at_least(self.differing, self.count, 1 - USEFUL) >= _CHANCE:
            return ""
        share = 100 * self.differing / self.count
        said = {
            "first class": f"another first class than the original in {share:.3g} % of {self.count} rows",
            "detection": f"{share:.3g} % of the original's {self.count} detections are lost",
        }
        return f"{said[self.what]}, the floor is {100 * (1 - USEFUL):.0f} % beyond chance"


def _at_least(hits: int, count: int, share: float) -> float:
    """The probability of `hits` or more in `count` independent trials that hit with the probability `share`."""
    if hits <= share * count:
        return 1.0
    if count > _MANY:
        return 1 - NormalDist(share * count, math.sqrt(count * share * (1 - share))).cdf(hits - 0.5)
    terms = (math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits, count + 1))
    return float(np.sum(list(terms)))
