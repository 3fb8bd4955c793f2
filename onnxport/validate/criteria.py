"""The criteria that apply to a candidate, by the two precisions. docs/reference/fidelity.md has this as a table."""

from __future__ import annotations

from dataclasses import dataclass

from onnxport.validate.precision import INTEGER_WEIGHTS
from onnxport.validate.report import Precision
from onnxport.validate.rounded_model import ROUNDINGS

_FULL = frozenset[Precision]({"float32", "float64"})
# A float32 artefact computes these alike: its weights are de-quantized when it is made.
_WIDENED = frozenset[Precision](
    {"float64", "float16", "bfloat16", "float16 weights", "bfloat16 weights", "int8 weights", "int4 weights"}
)
# Those that hold the integers of a run-time quantization, and its products, exactly.
_KEEPING = _FULL | INTEGER_WEIGHTS
_UNREADABLE = (
    "only quality was evaluated: the roundings cannot be applied, because the reference's graph cannot be read; "
    "give the .onnx file that it was made from"
)


@dataclass(frozen=True)
class Criteria:
    """The criteria for one pair.

    Attributes:
        fidelity: whether the candidate has to equal a reference of its own precision.
        rounded: whether that is the reference with the candidate's roundings; else it is the reference itself.
        quality: whether to measure the cost of the lower precision.
        note: a note for the report; empty for none.
    """

    fidelity: bool = False
    rounded: bool = False
    quality: bool = False
    note: str = ""


def choose_criteria(
    reference: Precision,
    candidate: Precision,
    *,
    readable: bool = True,
    has_tolerance: bool = False,
    keeps_dynamic: bool = False,
) -> Criteria:
    """Choose the criteria for a pair.

    Args:
        readable: whether the reference's graph can be read, and so be rounded.
        has_tolerance: whether the user gave a tolerance, which then applies to the reference itself.
        keeps_dynamic: whether a float candidate quantizes at run time as the reference does.
    """
    if reference == candidate or "unknown" in (reference, candidate) or {reference, candidate} <= _FULL:
        return Criteria(fidelity=True)
    if reference == "float16" and candidate == "float16 weights":
        return Criteria(fidelity=True)  # ONNX Runtime's own .ort of it, where the CPU has no float16 kernels
    pair = f"the reference is {reference} and the candidate {candidate}"
    if candidate in _FULL and reference in _WIDENED:
        note = (
            f"{pair}: it is compared with the reference's own rounded numbers; "
            "to see what these cost, name the float original first"
        )
        return Criteria(fidelity=True, note=note)
    if has_tolerance or (keeps_dynamic and candidate in _KEEPING):
        return Criteria(fidelity=True, quality=True)
    is_float16 = reference in INTEGER_WEIGHTS and candidate == "float16"
    if is_float16 or (reference == "float32" and candidate in ROUNDINGS):
        if readable:
            return Criteria(fidelity=True, rounded=True, quality=True)
        return Criteria(quality=True, note=_UNREADABLE)
    if reference in _FULL:
        return Criteria(quality=True)
    note = (
        f"{pair}: the figures show how much they differ, not which is right; "
        "to measure a lower precision, give its float original first"
    )
    return Criteria(quality=True, note=note)
