"""The evidence in the reference's answers: an output with too much noise, or that no input moves, proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.sizes import Shapes
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, Tolerance, root_mean_squares

SATURATED = "it is 0 or 1 for all inputs that were fed, or -1: its last node is saturated"

# How far an output must move between two sets of inputs, in multiples of both tolerances together. Beyond 1 no constant
# in its place would pass both; that is enough at a low precision, whose tolerance is wide.
_MOVE, _MOVE_LOW = 2.0, 1.0


@dataclass(frozen=True)
class _Answer:
    """One answer with its tolerance.

    Attributes:
        allowed: the derived tolerance per element.
        mean: the tolerance for the root mean square per group, if there is one.
        share: the noise as a share of the output's scale.
        least: how far another answer must move, in multiples of both tolerances.
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
    """The evidence about one output after some sets of inputs.

    Attributes:
        saturates: whether the output is that of a Softmax or the like, of which elements must be seen to differ between
            its ends: a candidate that gives the nearest end, 0 or 1, would pass otherwise.
        between: whether they were, in one answer or two. An input of zeros gives 0.25 throughout, whatever the weights.
        middle: the first answer with elements between the ends, by shape.
        noise_share: the smallest noise relative to the scale in any set.
        moves: whether an element differs between two sets by more than _MOVE or _MOVE_LOW times both tolerances.
        sets, filled: how many answers there were, and how many that have elements.
        conclusive: the largest conclusive noise_share.
        sizes: the shape of the first answer to inputs of some shapes.
        quietest: the answer with the least noise, by shape.
        varied: whether the elements of one answer differ from each other, where no second answer has its shape.
        nan: whether every answer was NaN everywhere.
        batched, rows_differ: whether an answer had several rows, and whether two rows of one ever differed: if not, a
            candidate that answers every row with the first would pass.
    """

    saturates: bool = False
    between: bool = False
    middle: dict[tuple[int, ...], _Answer] = field(default_factory=dict)
    noise_share: float = np.inf
    moves: bool = False
    sets: int = 0
    filled: int = 0
    conclusive: float = CONCLUSIVE_NOISE
    sizes: dict[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...]] = field(default_factory=dict)
    quietest: dict[tuple[int, ...], _Answer] = field(default_factory=dict)
    varied: bool = False
    nan: bool = True
    batched: bool = False
    rows_differ: bool = False

    def add(
        self,
        name: str,
        answer: Array,
        noise: Noise,
        tolerance: Tolerance,
        batch: int = 1,
        shapes: Shapes | None = None,
    ) -> None:
        """Count the answer to one more set, of `batch` rows, to inputs of these shapes."""
        self.sets += 1
        self.conclusive = tolerance.rule.conclusive
        is_nan = bool(answer.size and answer.dtype.kind == "f" and np.isnan(answer).all())
        self.nan &= is_nan
        # Nothing moves that is compared with NaN, and its noise is the least of all.
        if noise.reshaped or is_nan:
            return
        if shapes is not None:
            # Inputs of one size that give answers of two move the output.
            self.moves |= self.sizes.setdefault(tuple(sorted(shapes.items())), answer.shape) != answer.shape
        if not answer.size:
            return
        self.filled += 1
        answered = _with_tolerance(name, answer, noise, tolerance)
        self.noise_share = min(self.noise_share, answered.share)
        # At a low precision the tolerance hides what lies between; there the nodes are proven.
        self.saturates &= answered.least == _MOVE
        if self.saturates and not self.between and _between(answered).any():
            first, own = self.middle.setdefault(answer.shape, answered), _middle(answered)
            differ = _spread(own.answer) > _MOVE * 2 * answered.largest
            self.between = differ or _moves(_middle(first), own)
        before = self.quietest.get(answer.shape)
        if before is None:
            self.varied |= _spread(answer) > _MOVE * 2 * answered.largest
        else:
            self.moves |= _moves(before, answered)
        if before is None or answered.largest < before.largest:
            self.quietest[answer.shape] = answered
        if batch > 1 and answer.ndim and len(answer) == batch:
            self.batched = True
            first = replace(answered, answer=answer[:1])
            self.rows_differ |= any(
                # Slices: a row of a single string is no array.
                _moves(first, replace(answered, answer=answer[row : row + 1]))
                for row in range(1, batch)
            )

    @property
    def blind(self) -> bool:
        """Whether swapped rows of a batch would not show."""
        return self.batched and not self.rows_differ

    def movement(self, answer: Array) -> float:
        """Return how far an answer is from the quietest of its shape, as a share of that one's largest number."""
        before = self.quietest.get(answer.shape)
        if before is None or not answer.size:
            return 0.0
        change = _change(before.answer, answer)
        numbers = before.answer if before.answer.dtype.kind in "fiu" else np.zeros(1)
        largest = float(np.max(np.abs(np.where(np.isfinite(numbers), numbers, 0)), initial=0.0))
        return float(np.max(np.where(np.isfinite(change), change, 0.0))) / (largest or 1.0)

    def doubt(self) -> str:
        """Return why the output proves nothing; empty when it proves something."""
        if not self.sets:
            return "no inputs without NaN were fed"
        if self.nan:
            return "it is NaN everywhere"
        if not self.quietest:
            return "it is empty, or its size changes with rounding"
        if self.noise_share > self.conclusive:
            return f"the reference's own noise is {self.noise_share:.1%} of the output's scale"
        alone = len(self.quietest) == self.filled  # no two answers have a shape in common
        if self.moves or (alone and self.varied):
            seen = self.between or (alone and self.middle)
            return SATURATED if self.saturates and not seen else ""
        if alone:
            return "no two sets of inputs have the same size, which would show that it varies"
        return "it does not vary with the inputs"


class Proof:
    """The evidence about all outputs.

    Args:
        outputs: their names.
        constant: those that are constant by construction, and need no evidence.
        squashed: those of functions that saturate (graph_analysis.py).
    """

    def __init__(
        self,
        outputs: Iterable[str],
        constant: frozenset[str] = frozenset(),
        squashed: frozenset[str] = frozenset(),
    ) -> None:
        self._squashed = squashed
        self._evidence = {
            name: Evidence(saturates=name in squashed) for name in outputs if name not in constant
        }

    def anew(self) -> Proof:
        """Return a proof of the same outputs without evidence."""
        return Proof(self._evidence, frozenset(), self._squashed)

    @property
    def saturated(self) -> list[str]:
        """Outputs that vary, but were seen at their ends alone."""
        return [name for name, doubt in self.doubts.items() if doubt == SATURATED]

    def add(
        self,
        answers: Mapping[str, Array],
        noise: Mapping[str, Noise],
        tolerance: Tolerance,
        batch: int = 1,
        shapes: Shapes | None = None,
    ) -> None:
        """Count the answers to one more set, of `batch` rows, to inputs of these shapes."""
        for name, evidence in self._evidence.items():
            evidence.add(name, answers[name], noise[name], tolerance, batch, shapes)

    @property
    def doubts(self) -> dict[str, str]:
        """Output name to why the sets prove nothing of it."""
        found = {name: evidence.doubt() for name, evidence in self._evidence.items()}
        return {name: doubt for name, doubt in found.items() if doubt}

    def movement(self, answers: Mapping[str, Array]) -> float:
        """Return how far answers move what the sets so far prove nothing of, as a share of the largest known number."""
        return max((self._evidence[name].movement(answers[name]) for name in self.doubts), default=0.0)

    @property
    def blind(self) -> list[str]:
        """Outputs whose rows never differed within a batch."""
        return [name for name, evidence in self._evidence.items() if evidence.blind]


def _with_tolerance(name: str, answer: Array, noise: Noise, tolerance: Tolerance) -> _Answer:
    if answer.dtype.kind != "f":
        return _Answer(answer, np.zeros((1,) * answer.ndim), None, 0.0)
    allowed, mean = tolerance.derived(name, answer, noise), tolerance.mean(name, answer, noise)
    least = _MOVE if tolerance.rule.mean_factor is None else _MOVE_LOW
    return _Answer(answer, allowed, mean, _share(answer, noise, tolerance, allowed), least)


def _share(answer: Array, noise: Noise, tolerance: Tolerance, allowed: Array) -> float:
    """Return the noise as a share of the output's scale; at lower precisions both as root mean squares, if known."""
    finite = np.where(np.isfinite(answer), answer, 0.0).astype(np.float64)
    if tolerance.rule.mean_factor is not None and noise.rms is not None:
        signal = float(np.sqrt(np.mean(np.square(finite))))
        return float(np.sqrt(np.mean(np.square(noise.rms)))) / signal if signal else 0.0
    scale = float(np.max(np.abs(finite), initial=0.0))
    floor = float(np.min(allowed)) / tolerance.rule.factor if tolerance.rule.mean_factor is None else 0.0
    return max(noise.largest, floor) / scale if scale else 0.0


def between_ends(answer: Array, distance: Array | float) -> Array:
    """Return which elements are that far from every whole number."""
    finite = np.where(np.isfinite(answer), answer, 0.0).astype(np.float64)
    return np.asarray(np.abs(finite - np.rint(finite)) > distance)


def _between(answered: _Answer) -> Array:
    return between_ends(answered.answer, _MOVE * answered.allowed)


def _middle(answered: _Answer) -> _Answer:
    """Return an answer with NaN in place of elements at their ends: those are compared with nothing."""
    return replace(
        answered, answer=np.where(_between(answered), answered.answer.astype(np.float64), np.nan), mean=None
    )


def _moves(before: _Answer, after: _Answer) -> bool:
    """Return whether the answer changed by more than any constant in its place could hide."""
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
        values = answer.astype(str) if answer.dtype.kind in "OSU" else answer.astype(np.float32)
        return float(len(np.unique(values)) > 1)
    finite = answer[np.isfinite(answer)].astype(np.float64)
    return float(np.ptp(finite)) if finite.size else 0.0
