"""Nodes that compute the largest magnitude of every float value in a graph, branches and loop bodies included.

A branch or body returns the peaks as further results: zeros for the branch not taken, one per step for Loop and
Scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import onnx_ir as ir

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
_BODIES = {"Loop": 1, "Scan": 9}  # since which opset: Scan-8 has a batch

Peaks = list[tuple[str, ir.Value]]


def tap(graph: ir.Graph, opset: int) -> Peaks:
    """Append nodes to `graph` that compute the peaks; return each with its value's name, which may recur."""
    return _Taps(opset).add(graph)


class _Taps:
    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._names = (f"/peak/{number}" for number in count())

    def add(self, graph: ir.Graph) -> Peaks:
        values = [value for value in graph.inputs if value.name not in graph.initializers]
        found: Peaks = []
        for node in list(graph):
            values += node.outputs
            found += self._inside(graph, node)
        floats = [v for v in values if v.dtype in _FLOATS and isinstance(v.type, ir.TensorType)]
        return found + [(value.name, self._peak(graph, value)) for value in floats if value.name]

    def _peak(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        magnitude = self._put(graph, "Abs", [value], {}, value.shape)
        return self._put(graph, "ReduceMax", [magnitude], {"keepdims": 0}, ir.Shape(()))

    def _inside(self, graph: ir.Graph, node: ir.Node) -> Iterator[tuple[str, ir.Value]]:
        """Yield the peaks inside the node's own graphs, as values of `graph`."""
        if node.op_type == "If":
            branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
            tapped = [self.add(branch) for branch in branches]
            for branch, other, peaks in zip(branches, branches[::-1], tapped, strict=True):
                other.outputs.extend(self._zero(other, peak, ir.Shape(())) for _, peak in peaks)
                yield from self._return_peaks(node, branch, peaks)
        elif self._opset >= _BODIES.get(node.op_type, self._opset + 1):
            body = node.attributes["body"].as_graph()
            for name, steps in self._return_peaks(node, body, self.add(body)):
                steps.shape = ir.Shape([None])
                zero = self._zero(graph, steps, ir.Shape((1,)))  # there may be no step
                every = self._put(graph, "Concat", [steps, zero], {"axis": 0}, steps.shape)
                yield name, self._put(graph, "ReduceMax", [every], {"keepdims": 0}, ir.Shape(()))

    def _return_peaks(self, node: ir.Node, body: ir.Graph, peaks: Peaks) -> Iterator[tuple[str, ir.Value]]:
        """Make the peaks of one of the node's graphs results of the node."""
        body.outputs.extend(peak for _, peak in peaks)
        before = len(node.outputs)
        node.resize_outputs(before + len(peaks))
        for listed in ("scan_output_axes", "scan_output_directions"):
            if listed in node.attributes:
                given = list(node.attributes[listed].as_ints())
                node.attributes[listed] = ir.AttrInt64s(listed, given + [0] * len(peaks))
        for (name, peak), result in zip(peaks, node.outputs[before:], strict=True):
            result.name, result.type, result.shape = next(self._names), peak.type, ir.Shape(())
            yield name, result

    def _zero(self, graph: ir.Graph, like: ir.Value, shape: ir.Shape) -> ir.Value:
        assert like.dtype is not None
        zeros = ir.tensor(np.zeros(shape.numpy(), like.dtype.numpy()))
        made = self._put(graph, "Constant", [], {"value": zeros}, shape)
        made.type = like.type
        return made

    def _put(
        self,
        graph: ir.Graph,
        op: str,
        inputs: list[ir.Value],
        attributes: dict[str, ir.TensorProtocol | int],
        shape: ir.Shape | None,
    ) -> ir.Value:
        """Append a node and return its result, of its operand's type."""
        node = ir.node(op, inputs, attributes)
        result = node.outputs[0]
        node.name = result.name = next(self._names)
        result.type, result.shape = (inputs[0].type if inputs else None), shape
        graph.append(node)
        return result
