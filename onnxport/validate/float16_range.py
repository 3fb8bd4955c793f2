"""Whether inputs take a float16 source beyond float16.

ONNX Runtime computes a float16 model in float32 on a CPU, so that a value inside may exceed 65504 and the answer still
be finite. A runtime that computes in float16 has an infinity there, and is right: the source declares float16. On a
user's own samples the artefact would have to hold such values; on inputs that were generated they show nothing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from onnxport.core.arrays import Feeds
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.noise_runs import Answers
from onnxport.validate.reference import Reference

# Another sum of the same numbers may lie beyond the largest float16 already.
_EDGE = 0.99 * float(np.finfo(np.float16).max)
_NOTE = "{} not compared: inside the source, values go beyond float16 there, which ONNX Runtime computes in float32"


def leaves_float16(reference: Reference, answered: AnsweredSet, feeds: Feeds, given: Answers) -> bool:
    """Return whether a candidate's infinities and NaN on generated inputs are those of float16.

    Args:
        given: the candidate's answers.
    """
    if reference.precision != "float16" or reference.graph is None or answered.source != "generated":
        return False
    if all(np.isfinite(each).all() for each in given.values() if each.dtype.kind == "f"):
        return False
    # Values that are asked for are stored in their own type.
    found = reference.tap(feeds, sorted(reference.graph.intermediate_values))
    halves = [each for each in found.values() if each.dtype == np.float16]
    return any((np.abs(each) >= _EDGE).any() for each in halves)


def note_on(labels: Collection[str]) -> str:
    """Return the report's note on sets that were left out."""
    return _NOTE.format(", ".join(labels))
