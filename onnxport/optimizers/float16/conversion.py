"""Conversion of an ONNX model to float16: measure, place, rewrite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Feeds
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.float16.batch_norms import fold_batch_norms
from onnxport.optimizers.float16.magnitudes import Measured, measure_in_subprocess
from onnxport.optimizers.float16.operator_support import (
    complete_types,
    computes_floats,
    is_float,
    mark_sequences,
)
from onnxport.optimizers.float16.placement import place
from onnxport.optimizers.float16.rewriter import Counts, rewrite
from onnxport.optimizers.opset import lift
from onnxport.optimizers.passes import Rewritten

# The oldest opset that ONNX Runtime supports.
_OLDEST_OPSET = 7
# The first IR version whose weights need not be inputs.
_FREE_INITIALIZERS = 4
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_NAMED = 3  # nodes or constants in a note: their names may be long


@dataclass(frozen=True)
class Float16Model(Rewritten):
    """A float16 model; `islands` are the names of values computed, and of constants stored, in float32."""

    islands: tuple[str, ...] = ()


def to_float16(
    model: Model, folder: Path, samples: Sequence[Feeds] = (), *, io: bool = False
) -> Float16Model:
    """Return `model` in float16, except what float16 does not hold; saving rounds the weights.

    Args:
        folder: for temporary files; the result may read weights from there until it is saved.
        samples: inputs for measuring values; default: generated ones.
        io: convert float32 inputs and outputs, too.

    Raises:
        CannotConvertError: nothing in it is float32, or nothing of that can be float16.
    """
    copy, path = canonicalize(model), folder / "measured.onnx"
    copy.hand_over(path)
    return convert(copy, measure_in_subprocess(path, {}, samples), io=io)


def convert(model: Model, measured: Measured, *, io: bool = False) -> Float16Model:
    """Convert a `canonicalize`d model to float16, in place; see `to_float16`."""
    nodes = [node for node in model.graph.all_nodes() if computes_floats(node)]
    kept = place(model.ir, measured.peaks)
    if nodes and len(kept) == len(nodes):
        is_half = any(value.dtype in _HALVES for value in _values(model))
        raise CannotConvertError(
            f"nothing {'more ' if is_half else ''}of {model.path} can be float16",
            why="; ".join(_group(kept)),
            fix="use it as it is",
        )
    before = model.weight_bytes
    done = rewrite(model.ir, kept, io=io)
    facts = {
        "float16 nodes": len(nodes) - len(kept),
        "float32 nodes": dict(Counter(kept.values())),
        "casts": done.casts,
        "weights": {"before": before, "after": model.weight_bytes},
    }
    floats = [value for node in kept for value in node.outputs]
    floats += [value for graph in model.ir.graphs() for value in graph.initializers.values()]
    islands = tuple(value.name for value in floats if value.name and is_float(value))
    return Float16Model(model, _notes(kept, len(nodes), measured, done), facts, islands)


def canonicalize(model: Model) -> Model:
    """Return a copy without functions, with constants as initializers, all types and BatchNormalization folded.

    Raises:
        CannotConvertError: nothing in it is float32, or it is older than ONNX Runtime's promises and cannot be lifted.
    """
    copy = model.clone()
    if copy.ir.functions:
        common.InlinePass()(copy.ir)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy.ir)
    common.RemoveInitializersFromInputsPass()(copy.ir)
    if copy.opset < _OLDEST_OPSET:
        lift(copy.ir)
    copy.ir.ir_version = max(copy.ir.ir_version or 0, _FREE_INITIALIZERS)
    shape_inference.drop_declared(copy)
    shape_inference.infer(copy)
    mark_sequences(copy.graph)
    complete_types(copy.ir)
    values = list(_values(copy))
    if not any(map(is_float, values)) and not any(map(computes_floats, copy.graph.all_nodes())):
        types = {value.dtype for value in values}
        named = [each.name.lower() for each in _HALVES if each in types]
        named += ["float64, which stays as it is"] if ir.DataType.DOUBLE in types else []
        raise CannotConvertError(
            f"{model.path} has no float32 values to convert to float16",
            why=f"its floats are {' and '.join(named)}" if named else "it computes in integers",
            fix="use it as it is",
        )
    fold_batch_norms(copy.ir)
    common.RemoveUnusedNodesPass()(copy.ir)
    return copy


def _values(model: Model) -> Iterator[ir.Value]:
    for graph in model.ir.graphs():
        yield from graph.initializers.values()
        yield from (value for node in graph for value in node.outputs)


def _group(kept: Mapping[ir.Node, str]) -> list[str]:
    """Describe the nodes that stay float32 by reason, most frequent first."""
    reasons = []
    for reason, count in Counter(kept.values()).most_common():
        nodes = [node for node, why in kept.items() if why == reason]
        named = [f"{node.op_type} {node.outputs[0].name!r}" for node in nodes[:_NAMED]]
        more = f" and {count - _NAMED} more" if count > _NAMED else ""
        reasons.append(f"{reason} ({', '.join(named)}{more})")
    return reasons


def _notes(kept: Mapping[ir.Node, str], nodes: int, measured: Measured, done: Counts) -> tuple[str, ...]:
    notes = []
    if measured.failure:
        notes.append(f"no values were measured before the conversion to float16: {measured.failure}")
    if kept:
        notes.append(f"computed in float32: {len(kept)} of {nodes} nodes: {'; '.join(_group(kept))}")
    if done.clamped:
        shown = [f"{name!r} ({number:.3g})" for name, number in list(done.clamped.items())[:_NAMED]]
        more = f" and {len(done.clamped) - _NAMED} more" if len(done.clamped) > _NAMED else ""
        notes.append(f"constants beyond float16 became its largest number, 65504: {', '.join(shown)}{more}")
    return tuple(notes)
