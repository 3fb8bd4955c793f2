"""Float32 islands: nodes of a float16 program that compute in float32 (docs/guide/coreml.md).

A node is one if a value that it reads or computes is:

- larger than half of float16's largest number on the samples: other inputs may go further;
- not 0, and below float16's least normal number everywhere;
- shifted by an epsilon that float16 does not hold (epsilons.py), or by one that is not small beside it;
- an integer beyond 2048, from a Cast, or computed from such: positions and offsets;
- a sum of such large squares, inside a norm.

With `mixed` also nodes that amplify errors: powers, logarithms, norms, long sums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.float16.constants import LARGEST, LARGEST_INTEGER, LEAST
from onnxport.optimizers.float16.epsilons import SHIFTS, guards, is_delicate, reads_tiny
from onnxport.optimizers.float16.magnitudes import Measured
from onnxport.optimizers.float16.operator_support import is_float
from onnxport.optimizers.node_marks import EXACT
from onnxport.samples.value_uses import CARRIERS

_MOST = LARGEST / 2
TINY = "computes with a number too small for float16"
_SETTING = 16  # elements of a constant that is no weight
_NAMED = 3  # nodes in a note: their names may be long

_SQUARES = frozenset(
    (
        "ReduceL2 ReduceSumSquare LpNormalization LayerNormalization RMSNormalization InstanceNormalization "
        "GroupNormalization MeanVarianceNormalization SkipLayerNormalization SimplifiedLayerNormalization"
    ).split()
)
# Beside larger numbers, one below float16's least normal number is less than a rounding error.
_LARGE = LEAST / float(np.finfo(np.float16).eps)
# Operators whose result is a position if an operand is.
_POSITIONS = CARRIERS | frozenset("Add Sub Mul Div Floor Ceil Round Mod Min Max Clip Where Sum".split())
# Operators that amplify small errors.
_DELICATE = (
    _SQUARES
    | frozenset("ReduceSum ReduceL1 CumSum ReduceMean ReduceProd ReduceLogSum ReduceLogSumExp".split())
    | frozenset("Exp Log Pow Reciprocal Softplus LogSoftmax Sin Cos Tan Mod".split())
)


def islands(graph: ir.Graph, peaks: Mapping[str, float], *, mixed: bool) -> tuple[str, ...]:
    """Return the names of values whose nodes compute in float32, in graph order.

    `peaks` are magnitudes by name, measured by the pre-flight. With `mixed`, operators that amplify errors are islands.
    What control flow computes inside is not measured: there, values grow beyond float16 by constants that are. Nodes
    that a rewriting marked as exact are islands, too, so that the judge leaves what they replace unrounded.
    """
    found = [
        *reasons(list(graph), peaks, mixed=mixed),
        *(node for node in graph if EXACT in node.metadata_props),
    ]
    for inner in graph.subgraphs():
        found += reasons(list(inner), _grown_beyond(inner), mixed=mixed)
    return tuple(dict.fromkeys(value.name for node in found for value in node.outputs if value.name))


def _grown_beyond(graph: ir.Graph) -> dict[str, float]:
    """Return the values that a constant beyond float16 is added to, or multiplied with, with its magnitude."""
    found: dict[str, float] = {}
    for node in graph:
        if node.op_type not in _POSITIONS:
            continue
        operands = [value for value in node.inputs if value is not None and is_float(value)]
        grown = [found[value.name] for value in operands if value.name in found]
        constants = [value.const_value for value in operands if value.const_value is not None]
        large = [float(np.abs(each.numpy()).max()) for each in constants if 0 < each.size <= _SETTING]
        is_divided = node.op_type == "Div" and not grown
        peak = max([*grown, *([] if is_divided else large)], default=0.0)
        if peak > _MOST:
            found |= {value.name: peak for value in node.outputs if value.name and is_float(value)}
    return found


def reasons(
    nodes: Sequence[ir.Node], peaks: Mapping[str, float], *, mixed: bool = False
) -> dict[ir.Node, str]:
    """Return the nodes that compute in float32, in their order, each with the reason."""
    critical = dict(_critical(nodes, peaks))
    found = {node: _reason(node, critical, peaks, mixed=mixed) for node in nodes}
    return {node: reason for node, reason in found.items() if reason}


def _reason(node: ir.Node, critical: Mapping[str, str], peaks: Mapping[str, float], *, mixed: bool) -> str:
    for value in (*node.outputs, *node.inputs):
        if value is not None and (why := critical.get(value.name or "")):
            return why
    # A bias of 1e-5 next to 100 shifts nothing.
    peak = max((peaks.get(value.name or "", 0.0) for value in node.outputs), default=0.0)
    if is_delicate(node) or (node.op_type in SHIFTS and reads_tiny(node) and peak < _LARGE):
        return TINY
    source = node.inputs[0] if node.inputs else None
    if node.op_type in _SQUARES and source is not None and peaks.get(source.name or "", 0.0) ** 2 > _MOST:
        return "squares that it sums go beyond float16"
    if mixed and node.op_type in _DELICATE:
        dtypes = [value.dtype for value in node.outputs]
        if any(dtype is not None and dtype.is_floating_point() for dtype in dtypes):
            return "makes a small error a large one"
    return ""


def _critical(nodes: Sequence[ir.Node], peaks: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the values that float16 does not hold well, and why."""
    positions: set[str] = set()
    for name, peak in peaks.items():
        if peak > _MOST:
            yield name, "values go beyond float16"
        elif 0 < peak < LEAST:
            yield name, "values are too small for float16"
    for node in nodes:
        peak = max((peaks.get(value.name or "", 0.0) for value in node.outputs), default=0.0)
        dtype = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
        is_position = node.op_type == "Cast" and dtype is not None and not dtype.is_floating_point()
        if node.op_type in _POSITIONS:
            is_position |= any(value is not None and value.name in positions for value in node.inputs)
        if peak > LARGEST_INTEGER and is_position:
            positions.update(value.name for value in node.outputs if value.name)
        if node.op_type in SHIFTS and reads_tiny(node) and guards(node):
            yield from ((value.name, TINY) for value in node.outputs if value.name)
    yield from ((name, "whole numbers go beyond 2048, which float16 counts no further") for name in positions)


def island_notes(graph: ir.Graph, found: Collection[str], measured: Measured) -> tuple[str, ...]:
    """Return the report's notes on islands."""
    notes = []
    if measured.failure:
        notes.append(f"no values were measured before the conversion to float16: {measured.failure}")
    nodes = [node for node in graph if any(value.name in found for value in node.outputs)]
    if nodes:
        named = [f"{node.op_type} {node.outputs[0].name!r}" for node in nodes[:_NAMED]]
        left = len(nodes) - _NAMED
        more = f" and {left} more, all in the package's manifest" if left > 0 else ""
        notes.append(f"computed in float32: {len(nodes)} of {len(graph)} nodes, {', '.join(named)}{more}")
    return tuple(notes)
