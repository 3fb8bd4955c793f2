"""Which questions are asked of a candidate, told by the two precisions. docs/fidelity.md has this as a table."""

from __future__ import annotations

from dataclasses import dataclass

from onnxport.validate.report import Precision
from onnxport.validate.rounded_reference import ROUNDINGS

_FULL = frozenset[Precision]({"float32", "float64"})
# What a float32 artefact may hold and compute alike: weights are de-quantized when it is made.
_WIDENED = frozenset[Precision](
    {
        "float64",
        "float16",
        "bfloat16",
        "float16 weights",
        "bfloat16 weights",
        "int8 weights",
        "int4 weights",
    }
)


@dataclass(frozen=True)
class Asked:
    """What is asked.

    Attributes:
        fidelity: whether the candidate is held to a yardstick of its own precision.
        rounded: whether that is the reference with the candidate's roundings; else it is the reference itself.
        quality: whether the cost of the lower precision is measured.
        note: what the user should know about it; empty for nothing.
    """

    fidelity: bool = False
    rounded: bool = False
    quality: bool = False
    note: str = ""


def questions(
    reference: Precision, candidate: Precision, *, readable: bool = True, given: bool = False
) -> Asked:
    """What to ask of a pair.

    Args:
        readable: whether the reference's graph can be read, and so be rounded.
        given: whether the user gave a tolerance of their own, which is then kept to the reference itself.
    """
    if reference == candidate or "unknown" in (reference, candidate) or {reference, candidate} <= _FULL:
        return Asked(fidelity=True)
    if reference == "float16" and candidate == "float16 weights":
        return Asked(fidelity=True)  # ONNX Runtime's own .ort of it, where the CPU has no float16 kernels
    if candidate in _FULL and reference in _WIDENED:
        return Asked(fidelity=True, note=_held(reference, candidate))
    if given:
        return Asked(fidelity=True, quality=True)
    if reference == "float32" and candidate in ROUNDINGS:
        if readable:
            return Asked(fidelity=True, rounded=True, quality=True)
        return Asked(quality=True, note=_UNREADABLE)
    if reference in _FULL:
        return Asked(quality=True)
    return Asked(quality=True, note=_turned(reference, candidate))


_UNREADABLE = (
    "only quality was asked: the reference's graph cannot be read, so that its roundings cannot be made; "
    "give the .onnx it came from"
)


def _held(reference: Precision, candidate: Precision) -> str:
    return (
        f"the reference is {reference} and the candidate {candidate}: it is held to the reference's own rounded "
        "numbers; to see what these cost, name the float original first"
    )


def _turned(reference: Precision, candidate: Precision) -> str:
    return (
        f"the reference is {reference} and the candidate {candidate}: the figures say how far apart they are, not "
        "which is right; to judge a lower precision, name its float original first"
    )
