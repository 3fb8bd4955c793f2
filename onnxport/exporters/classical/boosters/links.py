"""From the sums of a forest to its answers, in NumPy as graph.py has it in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onnxport.core.arrays import Array

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
