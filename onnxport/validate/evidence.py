"""Whether the reference's answers prove anything: an output that noise drowns, or that no input moves, does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxport.validate.tolerance import CONCLUSIVE_NOISE, NOISE_FACTOR, Noise, Tolerance

Array = np.ndarray[Any, np.dtype[Any]]

# How far an output has to move between two sets of inputs, in what is allowed in both together. Beyond 1, no constant
# in its place would pass both.
_MOVE = 2.0


@dataclass
class Evidence:
    """What is known of one output after some sets of inputs.

    Attributes:
        noise_share: the smallest noise relative to the scale that a set had.
        moves: an element differs between two sets by more than `_MOVE` times what is allowed.
        quietest: of each shape the answer with the least noise, and what is allowed there.
        varied: an answer whose own elements differ from each other, for lack of a second one to compare with.
    """

    noise_share: float = np.inf
    moves: bool = False
    sets: int = 0
    quietest: dict[tuple[int, ...], tuple[Array, Array]] = field(default_factory=dict)
    varied: bool = False

    def add(self, name: str, answer: Array, noise: Noise, tolerance: Tolerance) -> None:
        """Takes in the answer to one more set."""
        self.sets += 1
        if noise.reshaped or not answer.size:
            return
        allowed, share = _resolution(name, answer, noise, tolerance)
        self.noise_share = min(self.noise_share, share)
        before, allowed_before = self.quietest.get(answer.shape, (None, None))
        if before is None or allowed_before is None:
            self.varied |= _spread(answer) > _MOVE * 2 * float(np.max(allowed))
        else:
            self.moves |= bool((_change(before, answer) > _MOVE * (allowed + allowed_before)).any())
        if allowed_before is None or np.max(allowed) < np.max(allowed_before):
            self.quietest[answer.shape] = answer, allowed

    def doubt(self) -> str:
        """Why the output proves nothing, or an empty text when it does."""
        if not self.quietest:
            return "it is empty, or of another size each time that rounding differs"
        if self.noise_share > CONCLUSIVE_NOISE:
            return f"ONNX Runtime's own noise is {self.noise_share:.1%} of its scale"
        alone = len(self.quietest) == self.sets  # no two answers have a shape in common
        if self.moves or (alone and self.varied):
            return ""
        if alone:
            return "no two sets of inputs are of one size, which would show that it varies"
        return "it does not vary with the inputs"


def doubts(evidence: Mapping[str, Evidence], constant: frozenset[str]) -> dict[str, str]:
    """Output name to why it proves nothing; outputs that are constant by construction need no evidence."""
    found = {name: known.doubt() for name, known in evidence.items() if name not in constant}
    return {name: doubt for name, doubt in found.items() if doubt}


def _resolution(name: str, answer: Array, noise: Noise, tolerance: Tolerance) -> tuple[Array, float]:
    """The derived tolerance per element, and the noise that it stands for as a share of the output's scale."""
    if answer.dtype.kind != "f":
        return np.zeros((1,) * answer.ndim), 0.0
    allowed = tolerance.derived(name, answer, noise)
    scale = float(np.max(np.abs(answer), initial=0.0, where=np.isfinite(answer)))
    floor = float(np.min(allowed)) / NOISE_FACTOR
    return allowed, max(noise.largest, floor) / scale if scale else 0.0


def _change(before: Array, after: Array) -> Array:
    if after.dtype.kind not in "fiu":
        return np.asarray(before != after).astype(np.float64)
    with np.errstate(invalid="ignore"):
        change = np.abs(after.astype(np.float64) - before.astype(np.float64))
    return np.nan_to_num(change, nan=0.0, posinf=np.inf)


def _spread(answer: Array) -> float:
    if answer.dtype.kind not in "fiu":
        return float(len(np.unique(answer.astype(str))) > 1)
    finite = answer[np.isfinite(answer)].astype(np.float64)
    return float(np.ptp(finite)) if finite.size else 0.0
