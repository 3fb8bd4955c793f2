"""Placement: the nodes that compute in float32, each with the reason, and nodes that join them to save Casts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.float16.constants import LARGEST, LARGEST_INTEGER
from onnxport.optimizers.float16.islands import reasons
from onnxport.optimizers.float16.operator_support import (
    CONTROL_FLOW,
    computes_floats,
    float32_reason,
    is_float,
)
from onnxport.samples.value_uses import CARRIERS

JOINED = "stands between others of these"
# Operators that gain more from float16 than their Casts cost, beside readers of larger constants.
_HEAVY = CONTROL_FLOW | frozenset(
    "Attention Conv ConvTranspose Einsum Gemm GRU LSTM MatMul MultiHeadAttention RNN".split()
)
_SMALL = 1024  # elements
# Operators that return elements of their operands.
_CHOOSING = CARRIERS - {"Cast"} | {"Where"}


def place(model: ir.Model, peaks: Mapping[str, float]) -> dict[ir.Node, str]:
    """Return the nodes, in subgraphs too, that compute in float32, each with the reason.

    The model has all types and no functions; `peaks` are magnitudes by name, measured by the pre-flight.
    """
    nodes = [node for graph in model.graphs() for node in graph if computes_floats(node)]
    peaks = without_masks(nodes, peaks)
    found = reasons(nodes, peaks)
    for node in nodes:
        if reason := float32_reason(node, model.opset_imports) or _becomes_integers(node, peaks):
            found[node] = reason
    for node in [each for each in found if _becomes_integers(each, peaks)]:
        producer = node.inputs[0].producer() if node.inputs[0] is not None else None
        if producer is not None:
            found.setdefault(producer, found[node])
    # Add nodes whose float inputs and results all belong to such nodes.
    waiting = [node for node in nodes if node not in found and _is_light(node)]
    while joined := [node for node in waiting if _is_between(node, found)]:
        found |= dict.fromkeys(joined, JOINED)
        waiting = [node for node in waiting if node not in found]
    return {node: found[node] for node in nodes if node in found}


def without_masks(nodes: Iterable[ir.Node], peaks: Mapping[str, float]) -> dict[str, float]:
    """Return `peaks` in which a selection between values and constants beyond float16 has the peak of the values.

    These constants are clamped: a Where of -3.4e38 does not overflow.
    """
    found, masked = dict(peaks), set[ir.Value]()
    for node in nodes:
        if node.op_type not in _CHOOSING:
            continue
        sources = [value for value in node.inputs if value is not None and is_float(value)]
        small = [each for value in sources if (each := value.const_value) is not None and each.size <= _SMALL]
        is_beyond = any(np.any(np.abs(tensor.numpy()) > LARGEST) for tensor in small)
        if not is_beyond and masked.isdisjoint(sources):
            continue
        peak = max(
            (found.get(value.name or "", 0.0) for value in sources if value.const_value is None), default=0.0
        )
        for value in node.outputs:
            masked.add(value)
            found[value.name or ""] = peak
    return found


def _becomes_integers(node: ir.Node, peaks: Mapping[str, float]) -> str:
    """Return why a Cast to integers needs float32: float16 does not hold them; empty if it does."""
    source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
    if node.op_type != "Cast" or source is None or result.dtype is None or result.dtype.is_floating_point():
        return ""
    beyond = peaks.get(source.name or "", 0.0) > LARGEST_INTEGER and result.dtype != ir.DataType.BOOL
    return "becomes integers beyond 2048" if beyond else ""


def _is_light(node: ir.Node) -> bool:
    constants = (value.const_value for value in node.inputs if value is not None)
    return node.op_type not in _HEAVY and all(each is None or each.size <= _SMALL for each in constants)


def _is_between(node: ir.Node, found: Mapping[ir.Node, str]) -> bool:
    computed = [v for v in node.inputs if v is not None and is_float(v) and v.const_value is None]
    sources = [value.producer() for value in computed]
    results = [value for value in node.outputs if is_float(value)]
    readers = {user for value in results for user, _ in value.uses()}
    neighbours = [each for each in (*sources, *readers) if each is not None]
    return bool(neighbours) and all(each in found for each in neighbours)
