"""Match the outputs of a converted model with the source's: renamed tensors, reordered outputs, permuted axes.

Shapes decide which tensors may match, and the smallest error decides between several: a tool is not called wrong for
names or order. (Its users have to find the match themselves, which is not counted.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """An output of the model and what an artefact answers in its place.

    Attributes:
        output: its name in the model.
        tensor: its name in the artefact; None if no tensor of the artefact has its shape.
        permutation: axis i of the artefact's tensor is axis permutation[i] of the output.
        error: largest absolute difference over all samples; infinite for NaN on one side only.
        scale: largest magnitude of the output over all samples.
    """

    output: str
    tensor: str | None
    permutation: Permutation
    error: float
    scale: float

    @property
    def relative(self) -> float:
        return self.error / self.scale if self.scale else self.error


def permutations_between(source: Sequence[int], target: Sequence[int]) -> list[Permutation]:
    """Every permutation that makes the shape `source` the shape `target`, the likeliest first.

    Unchanged is likelier than channels moved to the end, and that than to the front, and both than anything else.
    """
    if sorted(source) != sorted(target):
        return []
    rank = len(source)
    axes = tuple(range(rank))
    usual = [axes]
    if rank > 2:
        usual += [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    fitting = [p for p in permutations(axes) if all(source[p[axis]] == target[axis] for axis in axes)]
    return sorted(fitting, key=lambda p: usual.index(p) if p in usual else len(usual))


def match_inputs(
    source: Mapping[str, Sequence[int]], target: Mapping[str, Sequence[int]]
) -> dict[str, list[tuple[str, Permutation]]]:
    """For every input of the model the artefact's tensor, once per permutation that fits, the likeliest first.

    A tensor of the same name is taken if it fits, else the first in order that fits and is still free.

    Raises:
        ValueError: an input that no tensor fits.
    """
    free = dict(target)
    matches = {}
    for name, shape in sorted(source.items(), key=lambda item: item[0] not in target):
        for tensor in sorted(free, key=lambda tensor: tensor != name):
            if fitting := permutations_between(shape, free[tensor]):
                matches[name] = [(tensor, permutation) for permutation in fitting]
                del free[tensor]
                break
        else:
            offered = ", ".join(f"{tensor} {list(shape)}" for tensor, shape in free.items())
            raise ValueError(f"no input for {name} {list(shape)}, only {offered or 'none'}")
    return matches


def match_outputs(
    references: Sequence[Mapping[str, Array]], answers: Sequence[Mapping[str, Array]]
) -> list[Match]:
    """Pairs outputs and tensors, those that differ least first; one of each per sample, in the same order."""
    scales = {name: max(_largest(reference[name]) for reference in references) for name in references[0]}
    pairs = sorted(
        (
            Match(
                name,
                tensor,
                permutation,
                _error(references, answers, name, tensor, permutation),
                scales[name],
            )
            for name, output in references[0].items()
            for tensor, answer in answers[0].items()
            for permutation in permutations_between(output.shape, answer.shape)
        ),
        key=lambda match: match.relative,  # sorted is stable: of equal errors the likeliest permutation
    )
    chosen: dict[str, Match] = {}
    taken = set()
    for pair in pairs:
        if pair.output not in chosen and pair.tensor not in taken:
            chosen[pair.output] = pair
            taken.add(pair.tensor)
    return [chosen.get(name) or Match(name, None, (), math.inf, scale) for name, scale in scales.items()]


def _error(
    references: Sequence[Mapping[str, Array]],
    answers: Sequence[Mapping[str, Array]],
    name: str,
    tensor: str,
    permutation: Permutation,
) -> float:
    return max(
        _largest_difference(reference[name].transpose(permutation), answer[tensor])
        for reference, answer in zip(references, answers, strict=True)
    )


def _largest_difference(reference: Array, answer: Array) -> float:
    if reference.shape != answer.shape:
        return math.inf
    expected, found = reference.astype(np.float64), answer.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(_same(expected, found), 0.0, np.abs(found - expected))
    return float(np.nan_to_num(difference, nan=math.inf, posinf=math.inf).max(initial=0.0))


def _same(expected: Array, found: Array) -> Array:
    same: Array = (expected == found) | (np.isnan(expected) & np.isnan(found))
    return same


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values.astype(np.float64)), initial=0.0, where=np.isfinite(values)))
