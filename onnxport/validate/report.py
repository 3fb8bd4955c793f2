"""The verdict on a pair of artefacts as data; JSON, the terminal and every later format are views of it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

# `proven` and `unproven` end with exit 0, the second only because the user asked for no proof.
Verdict = Literal["proven", "not equivalent", "inconclusive", "unproven"]


class _Record(BaseModel):
    # Strings for non-finite numbers: JSON has none, and null would not read back.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Worst(_Record):
    """The element that is furthest off, where it is and what both sides say there."""

    index: tuple[int, ...]
    reference: float
    candidate: float
    input_set: str


class OutputReport(_Record):
    """The figures of one output over all input sets.

    Attributes:
        max_abs, mean_abs: the largest and the mean absolute difference.
        scale: the largest finite magnitude that the reference gave.
        noise: what ONNX Runtime differs from itself on the same inputs (see docs/tolerances.md).
        tolerance: the absolute difference allowed where the worst element is.
        sqnr_db: signal to quantization noise ratio, 10 log10(sum ref^2 / sum diff^2); None if without error.
        mismatches: elements beyond their tolerance, and non-finite or integer elements that differ.
        rule: which rule decided, in words.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    verdict: Verdict
    rule: str
    max_abs: float
    mean_abs: float
    scale: float
    noise: float
    tolerance: float
    sqnr_db: float | None
    mismatches: int
    elements: int
    worst: Worst | None = None


class InputSet(_Record):
    """One set of inputs that both sides were run on."""

    label: str
    shapes: dict[str, tuple[int, ...]]
    source: Literal["samples", "generated"]


class Side(_Record):
    """One of the two artefacts and the runtime that answered for it."""

    path: str
    format: str
    runtime: str
    size: int
    digest: str


class Report(_Record):
    """The comparison of a candidate with its reference."""

    reference: Side
    candidate: Side
    verdict: Verdict
    reason: str
    outputs: tuple[OutputReport, ...] = ()
    fed: tuple[InputSet, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the candidate may leave with exit 0."""
        return self.verdict in ("proven", "unproven")
