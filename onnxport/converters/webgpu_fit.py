"""`--to ort --fit webgpu`: what ONNX Runtime's WebGPU provider lacks or computes wrongly is written otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.converters import webgpu_rules
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.canonical_form import prepare
from onnxport.optimizers.opset.conversion import convert_opset
from onnxport.optimizers.opset.errors import LiftError

_OLDEST_OPSET = 13  # Pad has its pads as an input since 11, Conv is the same
_OTHERWISE = "for WebGPU, the model is written in opset {} and simpler operators"
_REWRITTEN = "for WebGPU, {} became others that it has"
_FILLED = "for WebGPU, the input channels of {} Conv are filled up with zeros"


@dataclass(frozen=True)
class _ConvChannels:
    """Input channels of a Conv of one group that its kernel reads wrongly; they are filled up with zeros.

    Measured against the CPU with 1 to 258 channels in and 1 to 16 out (docs/guide/gpu.md).
    """

    above: int
    divided_by: int
    full: int  # what the padded channels, and those out, are a multiple of

    def holds(self, channels: int, outputs: int) -> bool:
        return (
            channels > self.above
            and channels % self.divided_by == 0
            and channels % self.full != 0
            and outputs % self.full == 0
        )


_CONV = _ConvChannels(above=3, divided_by=3, full=4)


def fit(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Return a copy of `model` that WebGPU computes whole and right as far as rules go, and notes on what changed.

    Convolutions whose weights are no constants stay as they are, and so does a model with texts.
    """
    copy, notes = model.clone(), []
    typed = model.clone()
    shape_inference.infer(typed)
    is_old = copy.opset < _OLDEST_OPSET and any(map(_is_wrong, copy.graph.all_nodes()))
    if (is_old or webgpu_rules.lacks(typed)) and not _has_texts(typed):
        kept = {f"{node.domain}::{node.op_type}" for node in copy.graph.all_nodes() if node.domain}
        if copy.opset > webgpu_rules.NEWEST_OPSET:
            with contextlib.suppress(LiftError):  # the nodes that stay newer are refused by name
                copy = convert_opset(copy, webgpu_rules.NEWEST_OPSET).model
        native = webgpu_rules.TAKEN | {op for op in kept if op.startswith("com.microsoft::")}
        copy = prepare(copy, shapes={}, native=lambda: native).model
        count = webgpu_rules.rewrite(copy)
        notes.append(_OTHERWISE.format(copy.opset))
        if count:
            notes.append(_REWRITTEN.format(f"{count} node{'s' if count > 1 else ''}"))
    if copy.opset >= _OLDEST_OPSET and (
        found := [node for node in copy.graph.all_nodes() if _is_wrong(node)]
    ):
        _fill_up_all(found, copy)
        notes.append(_FILLED.format(len(found)))
    return (copy, tuple(notes)) if notes else (model, ())


def _has_texts(model: Model) -> bool:
    values = (value for node in model.graph.all_nodes() for value in (*node.inputs, *node.outputs) if value)
    ports = (*model.graph.inputs, *model.graph.outputs)
    return any(value.dtype == ir.DataType.STRING for value in (*ports, *values))


def _fill_up_all(found: Sequence[ir.Node], copy: Model) -> None:
    taken = {
        value.name for node in copy.graph.all_nodes() for value in (*node.inputs, *node.outputs) if value
    }
    taken |= {*copy.graph.initializers, *(value.name for value in copy.graph.inputs)}
    for number, node in enumerate(found):
        _fill_up(node, copy.graph, number, taken)


def _is_wrong(node: ir.Node) -> bool:
    if node.op_type != "Conv" or node.domain != "" or node.attributes.get_int("group", 1) != 1:
        return False
    weights = node.inputs[1]
    if weights is None or weights.const_value is None or weights.dtype != ir.DataType.FLOAT:
        return False
    outputs, channels = weights.const_value.shape.numpy()[:2]
    return _CONV.holds(channels, outputs)


def _fill_up(node: ir.Node, graph: ir.Graph, number: int, taken: set[str | None]) -> None:
    """Give a Conv zeros as further channels of its input and its weights: they add nothing to any sum."""
    data, weights = node.inputs[0], node.inputs[1]
    assert data is not None
    assert weights is not None
    assert weights.const_value is not None
    array = weights.const_value.numpy()
    lacking = -array.shape[1] % _CONV.full
    rank = array.ndim
    base = f"filled_{number}"
    while any(f"{base}_{part}" in taken for part in ("pads", "weights", "data")):
        base += "_"
    pads = np.zeros(2 * rank, np.int64)
    pads[rank + 1] = lacking
    wider = np.pad(array, [(0, 0), (0, lacking)] + [(0, 0)] * (rank - 2))
    padded = ir.node("Pad", [data, add_initializer(graph, f"{base}_pads", pads)], name=f"{base}_data")
    padded.outputs[0].name, padded.outputs[0].type = f"{base}_data", data.type
    owner = node.graph  # of a branch, where constants of the main graph can be read
    assert owner is not None
    owner.insert_before(node, padded)
    node.replace_input_with(0, padded.outputs[0])
    node.replace_input_with(1, add_initializer(graph, f"{base}_weights", wider))
    name = weights.name or ""
    for holder in (owner, graph):
        if name in holder.initializers and not weights.uses() and not weights.is_graph_input():
            del holder.initializers[name]
