"""If: one TFLite op with both branches as functions."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as onnx

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.control.functions import emit_branches, find_captures, nested_value
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value


@lower("If")
def if_(node: TflNode, tfl: TflBuilder) -> None:
    """Run one of two graphs, whose results may differ in their sizes (ONNX If-21)."""
    _If(node, tfl).run()


class _If:
    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.node, self.tfl = node, tfl
        self.graphs: list[onnx.Graph] = [node.attribute("then_branch"), node.attribute("else_branch")]
        self.captured = find_captures(node, tfl, self.graphs)
        self.outputs: list[list[Value]] = []

    def run(self) -> None:
        tfl = self.tfl
        condition = tfl.reshape(tfl.tensor(self.node.x), ())
        operands = [value.copies[value.order] for value in self.captured.values() if value.constant is None]
        then, otherwise = (partial(self._branch, graph) for graph in self.graphs)
        results = emit_branches(tfl, condition, operands, then, otherwise)
        for index, (tensor, pair) in enumerate(zip(results, zip(*self.outputs, strict=True), strict=True)):
            result = tfl.computed(tensor, pair[0].order)
            result.is_size = all(each.is_size for each in pair)
            result.is_natural = all(each.is_natural for each in pair)
            self.node.emit(result, index)

    def _resized(self, tensor: Tensor) -> Tensor:
        """Return a tensor of open size whose size TFLite knows only when the branch runs.

        Otherwise it prepares both branches for the sizes at hand, which may suit one of them only.
        """
        tfl, shape = self.tfl, self.tfl.shape_of(tensor)
        if None not in shape:
            return tensor
        sizes = tfl.op("shape", [tensor], [len(shape)], np.int32)
        computed = tfl.op("maximum", [sizes, tfl.int32(0)], [len(shape)])  # SHAPE alone is known beforehand
        return tfl.op("reshape", [tensor, computed], shape)

    def _branch(self, graph: onnx.Graph, operands: list[Tensor]) -> list[Tensor]:
        rest = iter(operands)
        visible = {
            key: nested_value(value, None if value.constant is not None else self._resized(next(rest)))
            for key, value in self.captured.items()
        }
        outputs = [value for value in self.tfl.scope.lower(graph, visible) if value is not None]
        if len(outputs) < len(graph.outputs):
            self.node.unsupported(f"its branch {graph.name!r} has nodes that are refused")
        self.outputs.append(outputs)
        then = self.outputs[0]
        for ours, theirs in zip(outputs, then, strict=True):
            if ours.rank != theirs.rank:
                self.node.unsupported(
                    f"its branches give {theirs.rank} and {ours.rank} dimensions for one result; "
                    "give it the same number in both"
                )
        return [self.tfl.tensor(value, model.order) for value, model in zip(outputs, then, strict=True)]
