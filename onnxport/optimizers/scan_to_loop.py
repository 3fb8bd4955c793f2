"""Scan rewritten as Loop whose body gathers its slices, so that a target needs only one of the two."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model

_FAR = np.iinfo(np.int64).min  # beyond the first element, for a slice that runs backwards


def scans_to_loops(model: Model) -> int:
    """Rewrite every Scan whose results have a known rank as a Loop; return how many."""
    scans = [node for node in model.graph.all_nodes() if node.op_type == "Scan" and node.domain == ""]
    known = [node for node in scans if all(value.shape is not None for value in node.outputs)]
    for node in known:
        _Scan(node).rewrite()
    return len(known)


class _Scan:
    """A Scan under rewriting: states come first among inputs and outputs, then scanned and stacked values."""

    def __init__(self, node: ir.Node) -> None:
        assert node.graph is not None
        self.node, self.graph = node, node.graph
        self.body: ir.Graph = node.attributes["body"].as_graph()
        self.prefix = node.name or node.outputs[0].name or "scan"
        self.count = 0
        self.states = len(self.body.inputs) - node.attributes["num_scan_inputs"].as_int()

    def rewrite(self) -> None:
        node, body = self.node, self.body
        length = self._length()
        number, condition = (
            ir.Value(name=f"{self.prefix}.{name}", type=ir.TensorType(dtype), shape=ir.Shape([]))
            for name, dtype in (("step", ir.DataType.INT64), ("on", ir.DataType.BOOL))
        )
        self._cut(number, length)
        states = list(body.inputs)[: self.states]
        body.inputs[:] = [number, condition, *states]
        body.append(passed_on := self._new("Identity", condition))
        body.outputs.insert(0, passed_on.outputs[0])
        self._restack()
        node.op_type = "Loop"
        initial = list(node.inputs)[: self.states]
        node.resize_inputs(2 + self.states)
        for index, value in enumerate([length, None, *initial]):
            node.replace_input_with(index, value)
        for name in [name for name in node.attributes if name != "body"]:
            del node.attributes[name]

    def _length(self) -> ir.Value:
        source, axis = self.node.inputs[self.states], self._ints("scan_input_axes", len(self.body.inputs))[0]
        assert source is not None
        part = {"start": -1} if axis == -1 else {"start": axis, "end": axis + 1}
        shape = self._new("Shape", source, **part)
        squeeze = self._new("Squeeze", shape.outputs[0], self._constant(self.graph, [0]))
        self.graph.insert_before(self.node, [shape, squeeze])
        return squeeze.outputs[0]

    def _cut(self, number: ir.Value, length: ir.Value) -> None:
        """Gather each step's slice inside the body."""
        slices = list(self.body.inputs)[self.states :]
        axes = self._ints("scan_input_axes", len(slices))
        backwards = self._ints("scan_input_directions", len(slices))
        nodes: list[ir.Node] = []
        scanned = self.node.inputs[self.states :]
        for value, whole, axis, reverse in zip(slices, scanned, axes, backwards, strict=True):
            index = number
            if reverse:
                left = self._new("Sub", length, number)
                one = self._constant(self.body, 1)
                last = self._new("Sub", left.outputs[0], one)
                nodes += [left, last]
                index = last.outputs[0]
            gather = self._new("Gather", whole, index, axis=axis)
            gather.outputs[0].type = value.type
            nodes.append(gather)
            value.replace_all_uses_with(gather.outputs[0], replace_graph_outputs=True)
        if nodes and len(self.body):
            self.body.insert_before(self.body[0], nodes)
        else:
            self.body.extend(nodes)

    def _restack(self) -> None:
        """Move or reverse the axis along which Loop stacks, as the Scan asks."""
        stacked = list(self.node.outputs)[self.states :]
        axes = self._ints("scan_output_axes", len(stacked))
        backwards = self._ints("scan_output_directions", len(stacked))
        for value, axis, reverse in zip(stacked, axes, backwards, strict=True):
            if not reverse and axis == 0:
                continue
            assert value.shape is not None
            rank = len(value.shape)
            following: list[ir.Node] = []
            last = value
            if reverse:
                ends = [self._constant(self.graph, [number]) for number in (-1, _FAR, 0, -1)]
                following.append(self._new("Slice", last, *ends))
                last = following[-1].outputs[0]
            if axis % rank:
                order = list(range(1, rank))
                order.insert(axis % rank, 0)
                following.append(self._new("Transpose", last, perm=order))
            self._insert_behind(value, following)

    def _insert_behind(self, value: ir.Value, nodes: list[ir.Node]) -> None:
        """Insert `nodes`, the first of which reads `value`, between `value` and its other readers."""
        result = nodes[-1].outputs[0]
        value.replace_all_uses_with(result, replace_graph_outputs=True)
        nodes[0].replace_input_with(0, value)
        result.name, value.name = value.name, result.name
        result.type, value.shape = value.type, None
        self.graph.insert_after(self.node, nodes)

    def _ints(self, name: str, count: int) -> list[int]:
        return list(self.node.attributes.get_ints(name, [0] * count))

    def _name(self) -> str:
        self.count += 1
        return f"{self.prefix}.{self.count}"

    def _new(self, op: str, *inputs: ir.Value | None, **attributes: object) -> ir.Node:
        node = ir.node(op, list(inputs), attributes or None)  # type: ignore[arg-type]
        node.outputs[0].name = self._name()
        node.name = f"{self.prefix}/{op}.{self.count}"
        return node

    def _constant(self, graph: ir.Graph, numbers: int | list[int]) -> ir.Value:
        return add_initializer(graph, self._name(), np.array(numbers, np.int64))
