"""The metrics of an output: one table of their names, formulas and the outputs that have them.

docs/reference/metrics.md is this table in prose; a test compares the two. Metrics follow from sums over all elements of
all sets of inputs (error_sums.py). An element that is not finite on one side only is an infinite error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.validate.error_sums import TOP, ClassAgreement, ElementSums, MaskOverlap
from onnxport.validate.report import Figure

Direction = Literal["higher", "lower"]


@dataclass
class OutputSums:
    """The sums of one output, from which all metrics follow."""

    sums: ElementSums = field(default_factory=ElementSums)
    classes: ClassAgreement = field(default_factory=ClassAgreement)
    masks: MaskOverlap = field(default_factory=MaskOverlap)

    def add(self, reference: Array, candidate: Array, tie: float) -> None:
        """Count a set; scores that differ by at most `tie` are equal."""
        if reference.shape != candidate.shape:
            return
        self.sums.add(reference, candidate)
        self.classes.add(reference, candidate, tie)
        self.masks.add(reference, candidate)


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: in reports and in `--budget`.
        unit: "dB", "ULP"; shares are 0 to 1 and have none.
        better: the good direction.
        applies: to which outputs, in words.
        formula: with r the reference's and c the candidate's element, over all sets of inputs.
        may: whether an output of this dtype and shape can have it; its values may still rule that out.
        value: its value; None where it has no meaning.
    """

    name: str
    unit: str
    better: Direction
    applies: str
    formula: str
    may: Callable[[TensorSpec], bool]
    value: Callable[[OutputSums], float | None]


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def _is_number(spec: TensorSpec) -> bool:
    return spec.dtype != "string"


def _may_be_scores(spec: TensorSpec) -> bool:
    return _is_float(spec) and (not spec.shape or (len(spec.shape) >= 2 and spec.shape[-1] not in (0, 1)))


def _may_have_top(spec: TensorSpec) -> bool:
    few = spec.shape and isinstance(spec.shape[-1], int) and spec.shape[-1] <= TOP
    return _may_be_scores(spec) and not few


def _may_be_mask(spec: TensorSpec) -> bool:
    return spec.dtype != "string" and (not spec.shape or len(spec.shape) >= 3)


def _has_ulps(spec: TensorSpec) -> bool:
    return spec.dtype in ("float32", "float16")


def _is_exact(spec: TensorSpec) -> bool:
    return not _is_float(spec)


def scale_of(values: Array) -> float:
    """Return the largest finite magnitude; 0 for no values."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def _error(seen: OutputSums, value: float) -> float | None:
    """Return an error; None without a number, infinite where one side alone is not finite."""
    if seen.sums.broken:
        return math.inf
    return value if seen.sums.finite else None


def _max_of_scale(sums: ElementSums) -> float:
    if not sums.largest:
        return 0.0
    return sums.largest / sums.scale if sums.scale else math.inf


def _sqnr(seen: OutputSums) -> float | None:
    if seen.sums.broken:
        return -math.inf
    return seen.sums.sqnr_db if seen.sums.finite else None


def _cosine(seen: OutputSums) -> float | None:
    sums = seen.sums
    if sums.broken or not sums.finite:
        return 0.0 if sums.broken else None
    lengths = math.sqrt(sums.signal) * math.sqrt(sums.power)
    if not lengths:
        return 1.0 if sums.signal == sums.power else 0.0
    return max(-1.0, min(1.0, sums.product / lengths))


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


_NUMBERS = "every output of numbers or booleans"
_FLOATS = "float outputs"
_SCORES = (
    "class scores: floats [batch, classes], or [batch, ..., classes] with rows that a softmax gives; "
    "two classes or more"
)
_MASKS = (
    "masks: 3 axes or more and of an image's size (the last two axes longer than 1 have 16 entries or more), of "
    "booleans, of integers 0 to 255, or of floats 0 to 1 that are no class scores"
)

_TABLE = (
    Metric(
        "max_abs", "", "lower", _NUMBERS, "max |c - r|", _is_number, lambda it: _error(it, it.sums.largest)
    ),
    Metric(
        "mean_abs", "", "lower", _NUMBERS, "mean |c - r|", _is_number, lambda it: _error(it, it.sums.mean_abs)
    ),
    Metric(
        "max_of_scale", "", "lower", _FLOATS, "max |c - r| / max |r|", _is_float,
        lambda it: _error(it, _max_of_scale(it.sums)),
    ),
    Metric(
        "max_ulps", "ULP", "lower",
        "float32 and float16 outputs; elements that are finite and of one sign on both sides",
        "max of the steps from one representable float to the next between r and c",
        _has_ulps, lambda it: it.sums.ulps,
    ),
    Metric(
        "sqnr", "dB", "higher", _FLOATS, "10 log10(sum r^2 / sum (c - r)^2); Infinity without error",
        _is_float, _sqnr,
    ),
    Metric(
        "cosine", "", "higher", _FLOATS, "sum r c / sqrt(sum r^2 sum c^2); 1 where both are 0",
        _is_float, _cosine,
    ),
    Metric(
        "top1_agreement", "", "higher", _SCORES,
        "share of rows in which argmax c = argmax r, or r is as high at both up to what rounding explains",
        _may_be_scores, lambda it: it.classes.top1,
    ),
    Metric(
        "top5_agreement", "", "higher", "class scores of 6 classes or more",
        "share of rows in which argmax r is among the five largest c, up to what rounding explains",
        _may_have_top, lambda it: it.classes.top5,
    ),
    Metric(
        "mean_iou", "", "higher", _MASKS,
        "mean over the labels that occur of |r and c| / |r or c|; floats are two labels, below 0.5 and not below",
        _may_be_mask, lambda it: it.masks.mean_iou,
    ),
    Metric(
        "mismatch_share", "", "lower", "outputs of integers, booleans and strings",
        "share of elements in which c differs from r",
        _is_exact, lambda it: _share(it.sums.differing, it.sums.elements),
    ),
)  # fmt: skip
METRICS = {metric.name: metric for metric in _TABLE}


def figures(spec: TensorSpec, seen: OutputSums) -> tuple[Figure, ...]:
    """Return the metrics that the output `spec` has; its shape is that of its answers."""
    values = ((metric, metric.value(seen)) for metric in _TABLE if metric.may(spec))
    return tuple(
        Figure(metric=metric.name, value=value, unit=metric.unit, better=metric.better)
        for metric, value in values
        if value is not None
    )
