"""Read an ONNX model, a file or one in memory, as an operator graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.model import dims_of, dtype_name

_ONNX = ("", "ai.onnx")
_Type = ir.AttributeType
# Attributes that are kept as they are.
_PLAIN = (_Type.INT, _Type.INTS, _Type.FLOAT, _Type.FLOATS, _Type.STRING, _Type.STRINGS)


def read_onnx(path: Path) -> OperatorGraph:
    """Read the main graph of an `.onnx` file, unchecked; weights stay on disk."""
    return from_ir(ir.load(path))


def from_ir(model: ir.Model) -> OperatorGraph:
    """Return the main graph of `model`."""
    return _Reader(model.opset_imports).graph(model.graph)


def functions_from_ir(model: ir.Model) -> Iterator[OperatorGraph]:
    """Yield the graph of each model-local function."""
    for function in model.functions.values():
        yield _Reader(function.opset_imports).graph(function)


@cache
def operator_schema(op: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """Return ONNX's schema of an operator at an opset, None for one that ONNX does not define."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


class _Reader:
    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = {("" if domain in _ONNX else domain): opset for domain, opset in opsets.items()}
        self._tensors: dict[ir.Value, Tensor] = {}

    def graph(self, graph: ir.Graph | ir.Function) -> OperatorGraph:
        initializers = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        return OperatorGraph(
            nodes=[self._node(node) for node in graph],
            inputs=tuple(self._tensor(value) for value in graph.inputs if value.const_value is None),
            outputs=tuple(map(self._tensor, graph.outputs)),
            constants=tuple(map(self._tensor, initializers)),
            opset=self._opsets.get("", 0),
        )

    def _node(self, node: ir.Node) -> Node:
        domain = "" if node.domain in _ONNX else node.domain
        opset = self._opsets.get(domain, 1)
        schema = operator_schema(node.op_type, opset, domain)
        given = [each for each in node.attributes.values() if not each.is_ref()]
        return Node(
            op=node.op_type,
            name=node.name or "",
            domain=domain,
            version=schema.since_version if schema else opset,
            inputs=tuple(None if value is None else self._tensor(value) for value in node.inputs),
            outputs=tuple(self._tensor(value) if value.name else None for value in node.outputs),
            attributes={each.name: value for each in given if (value := _attribute(each)) is not None},
            bodies={name: self.graph(body) for each in given for name, body in _bodies(each)},
        )

    def _tensor(self, value: ir.Value) -> Tensor:
        if value not in self._tensors:
            name, data = value.name or "", _data(value)
            if data is None:
                shape = None if value.shape is None else dims_of(value)
                self._tensors[value] = Tensor(name, dtype_name(value.dtype), shape)
            else:
                is_preset = value.is_graph_input()
                shape = tuple(int(size) for size in data.shape)  # type: ignore[arg-type]
                self._tensors[value] = Tensor(name, dtype_name(data.dtype), shape, not is_preset, is_preset)
        return self._tensors[value]


def _data(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the elements of an initializer, or of a Constant node's output."""
    producer = value.producer()
    if value.const_value is not None or producer is None:
        return value.const_value
    is_constant = producer.op_type == "Constant" and producer.domain in _ONNX
    return constant_tensor(value) if is_constant else None


def _attribute(attribute: ir.Attr) -> Any:
    """Return a number, a string, a tuple of them, or a Tensor; None for what an operator graph does not hold."""
    value = attribute.value
    if attribute.type == _Type.TENSOR:
        return Tensor(value.name or "", dtype_name(value.dtype), tuple(value.shape), is_constant=True)
    if attribute.type not in _PLAIN:
        return None
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _bodies(attribute: ir.Attr) -> Iterator[tuple[str, ir.Graph]]:
    if attribute.type == _Type.GRAPH:
        yield attribute.name, attribute.as_graph()
    elif attribute.type == _Type.GRAPHS:
        yield from ((f"{attribute.name} {place}", body) for place, body in enumerate(attribute.as_graphs()))
