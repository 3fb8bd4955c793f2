"""Generated inputs on which what a source computes is not defined, so that answers show nothing.

- ONNX Runtime computes a float16 model in float32 on a CPU, so that a value inside may exceed 65504 and the answer
  still be finite. A runtime that computes in float16 has an infinity there, and is right: the source declares float16.
  Where ONNX Runtime stores the value its answer is NaN, and a runtime that computes in float32 has a number.
- A value that is 0 / 0 on an adversarial companion is NaN, and which integer NaN is quantized to is not defined (ONNX
  QuantizeLinear-21, Cast-21).

A user's own samples are compared whatever they lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Feeds
from onnxport.formats.model import Model
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.noise_runs import Answers
from onnxport.validate.reference import Reference

# Another sum of the same numbers may lie beyond the largest float16 already.
_EDGE = 0.99 * float(np.finfo(np.float16).max)
# Values inside in one run: all those of a network of 40 MB fill a gigabyte.
_AT_A_TIME = 64
_ROUNDS = frozenset("QuantizeLinear DynamicQuantizeLinear Cast".split())
# Of an output's scale: quantized models differ by less where all is defined.
_FAR = 0.1

BEYOND_FLOAT16 = "values inside the source go beyond float16 there, which ONNX Runtime computes in float32"
NAN_AS_INTEGER = "the source makes an integer of NaN there, and which one is not defined"


def why_undefined(
    reference: Reference, answered: AnsweredSet, feeds: Feeds, answers: Answers, given: Answers | None
) -> str:
    """Return why a set of generated inputs shows nothing of a candidate that differs; empty where it does.

    Args:
        answers: the reference's.
        given: the candidate's; None where it refuses, as Core ML does what it leaves undefined.
    """
    if reference.graph is None or not reference.owns_graph or answered.source != "generated":
        return ""
    are_finite = given is not None and is_finite(given) and is_finite(answers)
    if reference.precision == "float16" and not are_finite and _overflows(reference, reference.graph, feeds):
        return BEYOND_FLOAT16
    if answered.adversarial and (given is None or _is_far(answers, given)):
        rounded = _made_integers(reference.graph)
        if rounded and any(np.isnan(each).any() for each in reference.tap(feeds, rounded).values()):
            return NAN_AS_INTEGER
    return ""


def is_finite(answers: Answers) -> bool:
    """Return whether no float of the answers is NaN or infinite."""
    return all(np.isfinite(each).all() for each in answers.values() if each.dtype.kind == "f")


def _overflows(reference: Reference, graph: Model, feeds: Feeds) -> bool:
    """Return whether a value inside lies beyond float16. Values that are asked for are stored in their own type."""
    names = sorted(graph.intermediate_values)
    for start in range(0, len(names), _AT_A_TIME):
        found = reference.tap(feeds, names[start : start + _AT_A_TIME])
        halves = [each for each in found.values() if each.dtype == np.float16]
        if any((np.abs(each) >= _EDGE).any() for each in halves):
            return True
    return False


def notes_on(left_out: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the report's notes on sets that were left out, by reason."""
    return tuple(f"{', '.join(labels)} not compared: {why}" for why, labels in left_out.items())


def _is_far(answers: Answers, given: Answers) -> bool:
    for name, answer in answers.items():
        other = given.get(name, answer)
        if answer.dtype.kind != "f" or other.shape != answer.shape:
            if not np.array_equal(answer, other):
                return True
            continue
        scale = np.abs(answer, where=np.isfinite(answer), out=np.zeros_like(answer)).max(initial=0.0)
        if not np.allclose(other, answer, rtol=0, atol=_FAR * float(scale), equal_nan=True):
            return True
    return False


def _made_integers(graph: Model) -> list[str]:
    """Return the floats that nodes compute and others make integers of; ONNX Runtime shows these."""
    inside = graph.intermediate_values
    floats = [
        value.name
        for node in graph.graph
        if node.op_type in _ROUNDS and node.inputs[0] is not None
        for value in node.inputs[:1]
        if value is not None and value.name in inside and _is_to_integers(node)
    ]
    return sorted({name for name in floats if name})


def _is_to_integers(node: ir.Node) -> bool:
    if node.op_type != "Cast":
        return True
    target = ir.DataType(node.attributes.get_int("to", 1))
    return not target.is_floating_point() and target is not ir.DataType.BOOL
