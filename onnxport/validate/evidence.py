"""Whether the reference's answers prove anything: an output that noise drowns, or that no input moves, does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxport.core.arrays import Array
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, Tolerance, root_mean_squares

# How far an output has to move between two sets of inputs, in what is allowed in both together. Beyond 1, no constant
# in its place would pass both, which has to do where the precision is low and much is allowed.
_MOVE, _MOVE_LOW = 2.0, 1.0


@dataclass(frozen=True)
class _Known:
    """One answer.

    Attributes:
        allowed: the derived tolerance per element.
        mean: that of the root mean square per group, where one is asked.
        share: the noise as a share of the output's scale.
        least: how far it has to move, in what is allowed.
    """

    answer: Array
    allowed: Array
    mean: Array | None
    share: float
    least: float = _MOVE

    @property
    def largest(self) -> float:
        return float(np.max(self.allowed))


@dataclass
class Evidence:
    """What is known of one output after some sets of inputs.

    Attributes:
        noise_share: the smallest noise relative to the scale that a set had.
        moves: an element differs between two sets by more than _MOVE or _MOVE_LOW times what is allowed.
        conclusive: the largest share that shows anything.
        quietest: of each shape the answer with the least noise, and what is allowed there.
        varied: an answer whose own elements differ from each other, for lack of a second one to compare with.
        nan: every answer was NaN everywhere.
        batched, rows_differ: whether an answer had several rows, and whether two rows of one ever differed: where they
            do not, a candidate that answers every row with the first would pass.
    """

    noise_share: float = np.inf
    moves: bool = False
    sets: int = 0
    conclusive: float = CONCLUSIVE_NOISE
    quietest: dict[tuple[int, ...], _Known] = field(default_factory=dict)
    varied: bool = False
    nan: bool = True
    batched: bool = False
    rows_differ: bool = False

    def add(self, name: str, answer: Array, noise: Noise, tolerance: Tolerance, batch: int = 1) -> None:
        """Takes in the answer to one more set, of `batch` rows."""
        self.sets += 1
        self.conclusive = tolerance.rule.conclusive
        self.nan &= bool(answer.size and answer.dtype.kind == "f" and np.isnan(answer).all())
        if noise.reshaped or not answer.size:
            return
        known = _known(name, answer, noise, tolerance)
        self.noise_share = min(self.noise_share, known.share)
        before = self.quietest.get(answer.shape)
        if before is None:
            self.varied |= _spread(answer) > _MOVE * 2 * known.largest
        else:
            self.moves |= _moves(before, known)
        if before is None or known.largest < before.largest:
            self.quietest[answer.shape] = known
        if batch > 1 and answer.ndim and len(answer) == batch:
            self.batched = True
            first = replace(known, answer=answer[:1])
            self.rows_differ |= any(
                # Slices: a row of a single text is no array.
                _moves(first, replace(known, answer=answer[row : row + 1]))
                for row in range(1, batch)
            )

    @property
    def blind(self) -> bool:
        """Whether the rows of a batch could be mixed up unseen."""
        return self.batched and not self.rows_differ

    def doubt(self) -> str:
        """Why the output proves nothing, or an empty text when it does."""
        if not self.sets:
            return "no inputs without NaN were fed"
        if self.nan:
            return "it is NaN everywhere"
        if not self.quietest:
            return "it is empty, or of another size each time that rounding differs"
        if self.noise_share > self.conclusive:
            return f"ONNX Runtime's own noise is {self.noise_share:.1%} of its scale"
        alone = len(self.quietest) == self.sets  # no two answers have a shape in common
        if self.moves or (alone and self.varied):
            return ""
        if alone:
            return "no two sets of inputs are of one size, which would show that it varies"
        return "it does not vary with the inputs"


class Proof:
    """What all sets of inputs prove of all outputs.

    Args:
        outputs: their names.
        constant: those that are constant by construction, and need no evidence.
    """

    def __init__(self, outputs: Iterable[str], constant: frozenset[str]) -> None:
        self._known = {name: Evidence() for name in outputs if name not in constant}

    def add(
        self, answers: Mapping[str, Array], noise: Mapping[str, Noise], tolerance: Tolerance, batch: int = 1
    ) -> None:
        """Takes in the answers to one more set, of `batch` rows."""
        for name, known in self._known.items():
            known.add(name, answers[name], noise[name], tolerance, batch)

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why nothing is proven of it."""
        found = {name: known.doubt() for name, known in self._known.items()}
        return {name: doubt for name, doubt in found.items() if doubt}

    @property
    def blind(self) -> list[str]:
        """Outputs whose rows never differed within a batch."""
        return [name for name, known in self._known.items() if known.blind]


def _known(name: str, answer: Array, noise: Noise, tolerance: Tolerance) -> _Known:
    if answer.dtype.kind != "f":
        return _Known(answer, np.zeros((1,) * answer.ndim), None, 0.0)
    allowed, mean = tolerance.derived(name, answer, noise), tolerance.mean(name, answer, noise)
    least = _MOVE if tolerance.rule.mean_factor is None else _MOVE_LOW
    return _Known(answer, allowed, mean, _share(answer, noise, tolerance, allowed), least)


def _share(answer: Array, noise: Noise, tolerance: Tolerance, allowed: Array) -> float:
    """The noise as a share of the output's scale; at the lower precisions both as root mean squares, if there are."""
    finite = np.where(np.isfinite(answer), answer, 0.0).astype(np.float64)
    if tolerance.rule.mean_factor is not None and noise.rms is not None:
        signal = float(np.sqrt(np.mean(np.square(finite))))
        return float(np.sqrt(np.mean(np.square(noise.rms)))) / signal if signal else 0.0
    scale = float(np.max(np.abs(finite), initial=0.0))
    floor = float(np.min(allowed)) / tolerance.rule.factor if tolerance.rule.mean_factor is None else 0.0
    return max(noise.largest, floor) / scale if scale else 0.0


def _moves(before: _Known, after: _Known) -> bool:
    """Whether the answer changed by more than any constant in its place could hide."""
    change = _change(before.answer, after.answer)
    if bool((change > after.least * (before.allowed + after.allowed)).any()):
        return True
    found = root_mean_squares(np.where(np.isfinite(change), change, 0.0))
    if before.mean is None or after.mean is None or found is None:
        return False
    return bool((found > after.least * (before.mean + after.mean)).any())


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
