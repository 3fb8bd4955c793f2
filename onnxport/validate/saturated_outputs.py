"""Inputs between two that a Softmax or the like decides differently: there it is not saturated.

A network of which each answer is 0 or 1 to the last bit shows which score is the largest, and nothing of how large it
is: weights that are 1.25 times too large pass. On the line from one input to another of another decision the network,
which is continuous, answers what lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, islice

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.samples.sample import Sample
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.evidence import between_ends
from onnxport.validate.noise_runs import Answers

# Far enough from 0 and 1 that rounding does not show, and steps that halve a line to the last bit of float32.
_DISTANCE, _STEPS = 0.05, 24
# Pairs of sets that are tried for an output, and sets that are fed: of one, a decision within rounding may excuse all.
_PAIRS, _LEAST = 4, 2


def feed_between(
    names: Iterable[str],
    sets: Sequence[AnsweredSet],
    run: Callable[[Feeds], Answers],
    feed: Callable[[Callable[[], Sample], None], None],
    saturated: Callable[[], Collection[str]],
) -> None:
    """Feed inputs on which saturated outputs lie between their ends, until they are saturated no more.

    Args:
        names: the outputs.
        sets: those whose answers are kept are looked at.
        run: runs the reference.
        feed: adds one more set.
        saturated: returns the outputs that still are.
    """
    for name in names:
        for number, (feeds, label) in enumerate(_feeds_between(name, tuple(sets), run), 1):
            feed(partial(Sample, label, feeds, "generated"), None)
            if number >= _LEAST and name not in saturated():
                break


def _feeds_between(
    name: str, sets: Sequence[AnsweredSet], run: Callable[[Feeds], Answers]
) -> Iterator[tuple[Feeds, str]]:
    """Yield inputs on which an output lies between its ends, with the labels of the sets they lie between."""
    kept = [(each.label, each.kept) for each in sets if each.kept and not (each.adversarial or each.nan)]
    pairs = (pair for pair in combinations(kept, 2) if _is_pair(name, pair[0][1], pair[1][1]))
    for (label, first), (other, second) in islice(pairs, _PAIRS):
        found = _halve(name, first, second[0], run)
        if found is not None:
            yield found, f"between {label} and {other}"


def _is_pair(name: str, first: tuple[Feeds, Answers], second: tuple[Feeds, Answers]) -> bool:
    """Return whether two sets differ in floats of one size alone, and are decided differently."""
    for given, array in first[0].items():
        other = second[0][given]
        if array.shape != other.shape or (array.dtype.kind != "f" and not np.array_equal(array, other)):
            return False
    answers = first[1][name], second[1][name]
    return answers[0].shape == answers[1].shape and not _decides_alike(*answers)


def _decides_alike(first: Array, second: Array) -> bool:
    return np.array_equal(np.rint(first), np.rint(second))


def _halve(
    name: str, first: tuple[Feeds, Answers], second: Feeds, run: Callable[[Feeds], Answers]
) -> Feeds | None:
    """Halve the line between two inputs until an answer lies between the ends; None if it jumps."""
    begin, end = first[0], second
    for _ in range(_STEPS):
        middle = {
            given: array if array.dtype.kind != "f" else ((array + end[given]) / 2).astype(array.dtype)
            for given, array in begin.items()
        }
        answer = run(middle)[name]
        if answer.shape != first[1][name].shape:
            return None
        if between_ends(answer, _DISTANCE).any():
            return middle
        if _decides_alike(answer, first[1][name]):
            begin = middle
        else:
            end = middle
    return None
