"""`--to ort --fit webgpu`: what ONNX Runtime's WebGPU kernels compute wrongly becomes what they compute right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model

_OLDEST_OPSET = 13  # Pad has its pads as an input since 11, Conv is the same


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


def fit(model: Model) -> tuple[Model, int]:
    """Return a copy of `model` whose convolutions WebGPU computes right, and how many have changed.

    Weights that are no constants stay as they are, and so does a model below opset 13.
    """
    copy = model.clone()
    if copy.opset < _OLDEST_OPSET:
        return model, 0
    found = [node for node in copy.graph if _is_wrong(node)]
    taken = {
        value.name for node in copy.graph.all_nodes() for value in (*node.inputs, *node.outputs) if value
    }
    taken |= {*copy.graph.initializers, *(value.name for value in copy.graph.inputs)}
    for number, node in enumerate(found):
        _fill_up(node, copy.graph, number, taken)
    return (copy, len(found)) if found else (model, 0)


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
    graph.insert_before(node, padded)
    node.replace_input_with(0, padded.outputs[0])
    node.replace_input_with(1, add_initializer(graph, f"{base}_weights", wider))
    if (
        weights.name
        and not weights.uses()
        and weights.name in graph.initializers
        and not weights.is_graph_input()
    ):
        del graph.initializers[weights.name]
