"""The common form of boosted trees that xgboost.py, lightgbm.py and catboost.py read into.

A tree asks columns of the user's table and `Derived` ones: membership in a set of categories, or a number with the
library's "missing" as NaN. So each question compares with a threshold, which every version of ONNX's operators can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.columns import Column
from onnxport.samples.domain import Domain

Mode = Literal["BRANCH_LT", "BRANCH_LEQ", "BRANCH_GT"]

# Codes beside the known ones that are tried of a categorical column.
_STRANGERS = 2


@dataclass(frozen=True)
class Branch:
    """A question; `yes` and `no` are nodes of the same tree, NaN goes to `yes` where `missing` says so."""

    column: int
    mode: Mode
    threshold: float
    yes: int
    no: int
    missing: bool


@dataclass(frozen=True)
class Leaf:
    """The summands of a tree: target to weight."""

    weights: Mapping[int, float]


# The root first.
Tree = Sequence[Branch | Leaf]


@dataclass(frozen=True)
class Member:
    """1 where the column holds one of the categories `codes`, 0 for another, NaN for none.

    Numbers are cut to integers first, with `cuts_negative` before they are tested for being below 0 (-0.5 is 0 then).
    """

    column: int
    codes: frozenset[int]
    cuts_negative: bool = False


@dataclass(frozen=True)
class Missing:
    """The column with NaN for every value within `reach` of `value`."""

    column: int
    value: float
    reach: float = 0.0


Derived = Member | Missing


@dataclass
class Forest:
    """Trees over a table of `width` columns, whose sums are `targets` numbers per row."""

    width: int
    targets: int = 1
    base: Sequence[float] = (0.0,)  # what is added to the sums, one number per target
    trees: list[Tree] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)  # column `width + i` is derived[i]
    # Targets k + targets * (1 + f) of the leaves are factors of column f: leaves of linear functions.
    linear: bool = False
    nan: frozenset[int] | None = None  # the columns in which NaN means something
    _places: dict[Derived, int] = field(default_factory=dict)

    def place(self, derived: Derived) -> int:
        """Return the number of a derived column, which is made once."""
        if derived not in self._places:
            self._places[derived] = self.width + len(self.derived)
            self.derived.append(derived)
        return self._places[derived]

    def branches(self) -> Iterator[Branch]:
        for tree in self.trees:
            yield from (node for node in tree if isinstance(node, Branch))

    def domain(self, precision: str) -> Domain:
        """Return the values that the table may hold: thresholds, categories and NaN, in the dtype `precision`."""
        levels: dict[int, set[float]] = {column: set() for column in range(self.width)}
        codes: dict[int, set[int]] = {}
        for branch in filter(lambda each: np.isfinite(each.threshold), self.branches()):
            source = self.derived[branch.column - self.width] if branch.column >= self.width else None
            if source is None:
                levels[branch.column].add(branch.threshold)
            elif isinstance(source, Missing):
                levels[source.column] |= {branch.threshold, source.value}
        for derived in self.derived:
            if isinstance(derived, Member):
                codes.setdefault(derived.column, set()).update(derived.codes)
        return Domain(
            "table",
            precision=precision,
            columns=tuple(self._column(i, levels[i], codes.get(i)) for i in levels),
        )

    def _column(self, index: int, levels: Iterable[float], codes: set[int] | None) -> Column:
        missing = self.nan is None or index in self.nan
        if codes is not None:
            return Column(codes=(-1, *range(max(codes) + 1 + _STRANGERS)), missing=missing)
        return Column(tuple(sorted(levels)), missing=missing)


def round_threshold(threshold: float, mode: Mode) -> float:
    """Return the float32 threshold that splits float32 numbers as the float64 `threshold` does.

    x <= t where x is no wider than float32 says the same as x <= the largest float32 that is not above t; x > t is its
    contrary, and x < t asks for the smallest that is not below.
    """
    with np.errstate(over="ignore"):
        near = np.float32(threshold)
    if mode == "BRANCH_LT":
        return float(np.nextafter(near, np.float32(np.inf))) if float(near) < threshold else float(near)
    return float(np.nextafter(near, np.float32(-np.inf))) if float(near) > threshold else float(near)


# What turns sums into answers.
Link = Literal["identity", "sigmoid", "softmax", "exp", "softplus", "step", "signed square", "class"]


@dataclass(frozen=True)
class Answers:
    """The kind of answers; `label` and `scores` are names of ONNX outputs."""

    link: Link = "identity"  # from sums to scores
    scores: str = "prediction"  # "probabilities", "prediction", ..
    classes: Sequence[Any] = ()  # the labels; empty where the model gives none
    both: bool = False  # a binary classifier, whose single score becomes the two of its classes
    several: bool = False  # labels are independent of each other, 0 or 1 for each target
    scale: float = 1.0  # sums are multiplied by it before the link
    label: str = "label"


def apply_link(sums: Array, answers: Answers) -> dict[str, Array]:
    """Return the answers by output name, from float32 sums [rows, targets]."""
    scores = _LINKS[answers.link](sums)
    found: dict[str, Array] = {}
    if answers.several:
        found[answers.label] = (scores > 0.5).astype(np.int64)
    elif answers.classes:
        index = (scores[:, 0] > 0.5).astype(int) if answers.both else scores.argmax(axis=1)
        found[answers.label] = np.asarray(answers.classes)[index]
    if answers.both:
        scores = np.concatenate([1 - scores, scores], axis=1)
    return found | {answers.scores: scores}


def _softmax(sums: Array) -> Array:
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


_LINKS: Mapping[Link, Callable[[Array], Array]] = {
    "identity": lambda sums: sums,
    "sigmoid": lambda sums: np.asarray(1 / (1 + np.exp(-np.clip(sums, -80, 80)))),
    "softmax": _softmax,
    "exp": lambda sums: np.asarray(np.exp(sums)),
    "softplus": lambda sums: np.asarray(np.logaddexp(0, sums)),
    "step": lambda sums: (sums > 0).astype(np.float32),
    "signed square": lambda sums: np.asarray(sums * np.abs(sums)),
    "class": lambda sums: sums.argmax(axis=1)[:, None].astype(np.float32),
}
