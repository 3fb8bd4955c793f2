"""A set of inputs with the reference's answers to it, and their noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnxport.core.arrays import Feeds
from onnxport.validate.input_sets import Loader
from onnxport.validate.noise_runs import Answers
from onnxport.validate.report import InputSet
from onnxport.validate.tolerance import Noise


@dataclass
class AnsweredSet:
    """One set of inputs with the reference's answers.

    Attributes:
        load: makes or reads the same inputs again.
        label, source, shapes: see report.InputSet.
        noise: of each output.
        kept: the inputs and the answers; None where all sets together are too large to keep.
        adversarial, first_row: see Sample.
        nan: whether an input holds NaN that is no missing value, so that the answers prove nothing.
        is_estimated: whether `noise` is the least that probes would find (Reference.refine).
        is_partial: whether `noise` is that of few probes, because the sizes were known.
        is_evidence: whether it counts as evidence: other inputs than before, and no companion.
        is_between: whether it lies between two others, where a saturated output is not (saturated_outputs.py).
        is_wide: whether generated numbers that are compared with thresholds are no float32 numbers.
    """

    load: Loader
    label: str
    source: Literal["samples", "generated"]
    shapes: dict[str, tuple[int, ...]]
    noise: dict[str, Noise]
    kept: tuple[Feeds, Answers] | None
    adversarial: bool = False
    nan: bool = False
    first_row: int = 0
    is_estimated: bool = False
    is_partial: bool = False
    is_evidence: bool = False
    is_between: bool = False
    is_wide: bool = False

    @property
    def is_usual(self) -> bool:
        """Return whether these are inputs that a user may have: they measure quality."""
        return not (self.adversarial or self.nan or self.is_between)

    def input_set(self, steps: int) -> InputSet:
        """Return the set as the report shows it."""
        return InputSet(label=self.label, shapes=self.shapes, source=self.source, steps=steps)
