"""Candidates that round anew what their reference stores in integers already.

A source with weights of 8 bits may hold others in floats, and a conversion that is asked for 8 bits rounds those: both
are "int8 weights", and yet they differ by a rounding. So do two run-time quantizations whose grids differ. Answers
alone cannot tell such a rounding from a fault. So the candidate has to be the reference node for node, with each weight
within half a step of its own grid (translation/); then its answers are a question of quality, as behind a float source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onnxport.formats.artifact import Artifact
from onnxport.validate.reference import Reference
from onnxport.validate.report import Judgement, Precision
from onnxport.validate.translation.judgement import judge_translation

Judged: TypeAlias = tuple[tuple[Judgement, ...], tuple[str, ...]]


def judge_second_rounding(
    floats: Reference, candidate: Artifact, precision: Precision, measure: Callable[[], Judged]
) -> Judged | None:
    """Return the judgements on a candidate that is its reference node for node; None where that is not proven.

    Args:
        floats: the reference, without its run-time quantization if it has one.
        measure: evaluates the quality of the candidate.
    """
    translation, note = judge_translation(floats, candidate, precision)
    if translation is None or translation.verdict != "proven":
        return None
    judgements, notes = measure()
    return (*judgements, translation), (*notes, *([note] if note else ()))
