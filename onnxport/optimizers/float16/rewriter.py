"""The rewriting of a graph to float16: types, constants, and a Cast wherever the two precisions meet.

Every value keeps its name in its node's precision. A float32 output of a float16 node is a Cast of its result,
which is named `<name>/half`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.float16.constants import beyond_range, half_tensor
from onnxport.optimizers.float16.operator_support import (
    CONTROL_FLOW,
    ONNX,
    Float16Ports,
    float16_ports,
    is_float,
)

_HALF, _FLOAT = ir.DataType.FLOAT16, ir.DataType.FLOAT
_SUFFIXES = {_HALF: "half", _FLOAT: "float32"}
# A constant that both precisions read is stored twice up to so many elements; a larger one once, as float16.
_TWICE = 1024


@dataclass
class Counts:
    """Numbers of Casts put in, and the constants beyond float16 with the largest element of each."""

    casts: int = 0
    clamped: dict[str, float] = field(default_factory=dict)


def rewrite(model: ir.Model, kept: Collection[ir.Node], *, io: bool) -> Counts:
    """Rewrite `model` to float16 in place, except the nodes `kept`; with `io` its inputs and outputs, too.

    The model has all types, constants as initializers, and no functions.
    """
    return _Rewriting(model, kept, io=io).run()


class _Rewriting:
    def __init__(self, model: ir.Model, kept: Collection[ir.Node], *, io: bool) -> None:
        self._model, self._io, self._counts = model, io, Counts()
        self._nodes = [node for graph in model.graphs() for node in graph]
        self._ports = {
            node: Float16Ports() if node in kept else float16_ports(node, model.opset_imports)
            for node in self._nodes
        }
        self._owners = {
            attribute.as_graph(): node
            for node in self._nodes
            if node.op_type in CONTROL_FLOW
            for attribute in node.attributes.values()
            if attribute.type == ir.AttributeType.GRAPH
        }
        self._halves = self._values()
        outer = (v for graph in model.graphs() for v in (*graph.inputs, *graph.initializers.values()))
        self._names = {value.name for value in outer}
        self._names |= {value.name for node in self._nodes for value in node.outputs}
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._constants: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def run(self) -> Counts:
        self._store_constants()
        for node in self._nodes:
            for position, value in enumerate(node.inputs):
                wanted = _HALF if position in self._ports[node].operands else _FLOAT
                if value is not None and self._is_converted(value, wanted):
                    node.replace_input_with(position, self._in_precision(value, wanted))
        for graph in list(self._model.graphs()):
            self._convert_outputs(graph)
        for node in self._nodes:
            self._convert_type_attributes(node)
        for value in self._halves:
            value.type = ir.TensorType(_HALF)  # a new one: clones of a model share theirs
        for node in self._nodes:
            if node.op_type != "Cast" or node.domain not in ONNX:
                continue
            source, result = node.inputs[0], node.outputs[0]
            is_needless = source is not None and source.dtype == result.dtype and not result.is_graph_output()
            if source is not None and is_needless and node.graph is not None:
                result.replace_all_uses_with(source)
                node.graph.remove(node, safe=True)
        return self._counts

    def _values(self) -> set[ir.Value]:
        """Return the values that become float16, except constants."""
        found = {node.outputs[i] for node, what in self._ports.items() for i in what.results}
        for graph in self._model.graphs():
            if self._is_half_graph(graph):
                found.update(v for v in graph.inputs if is_float(v) and v.name not in graph.initializers)
        return found

    def _is_half_graph(self, graph: ir.Graph) -> bool:
        owner = self._owners.get(graph)
        return self._io if owner is None else bool(self._ports[owner])

    def _is_converted(self, value: ir.Value, wanted: ir.DataType) -> bool:
        """Return whether a value is, or was, a float32 tensor."""
        return is_float(value) or value in self._halves or (value, wanted) in self._constants

    def _in_precision(self, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        """Return `value` in the wanted precision: itself, or a Cast of it."""
        if value.const_value is not None:
            return self._constants.get((value, wanted), value)
        if (value in self._halves) == (wanted == _HALF):
            return value
        return self._cast(value, wanted)

    def _cast(self, value: ir.Value, to: ir.DataType) -> ir.Value:
        if (value, to) not in self._casts:
            node = ir.node("Cast", [value], {"to": int(to)})
            result = node.outputs[0]
            node.name = result.name = self._free_name(f"{value.name}/{_SUFFIXES[to]}")
            result.type, result.shape = ir.TensorType(to), value.shape
            _insert_after(value, node)
            self._casts[value, to] = result
            self._counts.casts += 1
        return self._casts[value, to]

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}.{number}"
        self._names.add(name)
        return name

    def _convert_outputs(self, graph: ir.Graph) -> None:
        wanted = _HALF if self._is_half_graph(graph) else _FLOAT
        for position, value in enumerate(graph.outputs):
            given = self._in_precision(value, wanted) if self._is_converted(value, wanted) else value
            if given is value:
                continue
            graph.outputs[position] = given
            if graph is self._model.graph:
                name, value.name = (
                    value.name,
                    self._free_name(f"{value.name}/{_SUFFIXES[_FLOAT if wanted == _HALF else _HALF]}"),
                )
                given.name = name

    def _store_constants(self) -> None:
        for graph in self._model.graphs():
            for value in list(graph.initializers.values()):
                if is_float(value) and value.const_value is not None:
                    self._store(graph, value, self._readers(value))

    def _readers(self, value: ir.Value) -> set[ir.DataType]:
        found = {_HALF if place in self._ports[node].operands else _FLOAT for node, place in value.uses()}
        leaving = [graph for graph in self._model.graphs() if value in graph.outputs]
        return found | {_HALF if self._is_half_graph(graph) else _FLOAT for graph in leaving}

    def _store(self, graph: ir.Graph, value: ir.Value, readers: set[ir.DataType]) -> None:
        tensor = value.const_value
        assert tensor is not None
        if _HALF not in readers:
            return
        most = beyond_range(tensor)
        if most:
            self._counts.clamped[value.name or ""] = most
        halves = half_tensor(tensor, value.name or "")
        if _FLOAT in readers and (most or tensor.size <= _TWICE or value.is_graph_output()):
            name = self._free_name(f"{value.name}/half")
            twin = ir.val(name, const_value=halves)
            graph.register_initializer(twin)
            self._constants[value, _HALF] = twin
            return
        value.const_value, value.type = halves, ir.TensorType(_HALF)
        if _FLOAT in readers:
            self._constants[value, _FLOAT] = self._cast(value, _FLOAT)

    def _convert_type_attributes(self, node: ir.Node) -> None:
        """Set float16 in attributes that name the result's type."""
        if 0 not in self._ports[node].results or node.domain not in ONNX:
            return
        if node.op_type == "Cast":
            node.attributes["to"] = ir.AttrInt64("to", int(_HALF))
        if node.op_type == "ConstantOfShape":
            given = node.attributes.get("value")
            number = given.as_tensor().numpy() if given is not None else np.zeros(1, np.float32)
            node.attributes["value"] = ir.AttrTensor("value", half_tensor(ir.tensor(number), "value"))


def _insert_after(value: ir.Value, node: ir.Node) -> None:
    producer, graph = value.producer(), value.graph
    assert graph is not None
    if producer is not None:
        graph.insert_after(producer, node)
    elif len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)
