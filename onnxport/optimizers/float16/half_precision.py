"""What a device that computes all in float16 would make of a model, as phones' GPUs do: values beyond it or too small.

Weights, activations and accumulators are taken as halves; peaks are those of the pre-flight on samples.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.optimizers.float16.islands import reasons
from onnxport.optimizers.float16.magnitudes import Measured
from onnxport.optimizers.float16.operator_support import computes_floats
from onnxport.optimizers.float16.placement import without_masks

_NAMED = 3
SCALED = (
    "for a GPU that computes in float16, scaled by powers of two that the weights around them take up: {}"
)
_UNKNOWN = "whether a GPU in float16 overflows was not measured: {}"
_SOUND = "for a GPU that computes in float16: all values of {} sets of samples fit it"
_AT_RISK = "for a GPU that computes in float16: {} of {} nodes, {}: {}"


def describe_half(model: ir.Model, measured: Measured) -> tuple[str, ...]:
    """Return notes on the nodes that float16 would overflow in or lose, by reason; one note where it would not.

    The model has all types and no functions.
    """
    if measured.failure:
        return (_UNKNOWN.format(measured.failure),)
    nodes = [node for graph in model.graphs() for node in graph if computes_floats(node)]
    found = reasons(nodes, without_masks(nodes, measured.peaks))
    if not found:
        return (_SOUND.format(measured.sets),)
    by_reason: dict[str, list[ir.Node]] = {}
    for node, reason in found.items():
        by_reason.setdefault(reason, []).append(node)
    notes = []
    for reason, risky in by_reason.items():
        named = ", ".join(f"{node.op_type} {_name(node)!r}" for node in risky[:_NAMED])
        more = f" and {len(risky) - _NAMED} more" if len(risky) > _NAMED else ""
        notes.append(_AT_RISK.format(len(risky), len(nodes), reason, f"{named}{more}"))
    return tuple(notes)


def _name(node: ir.Node) -> str:
    return node.name or node.outputs[0].name or ""
