"""An ONNX model as the graph that data files are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from onnxport.deployment.estimation.graph import Graph, Node, Tensor, linked
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model, dims_of, dtype_name
from onnxport.optimizers.opset import inline_functions
from onnxport.optimizers.shape_inference import drop_declared, infer, pin_inputs

_OWN = ("", "ai.onnx")


def graph_of(model: Model, shapes: Mapping[str, GivenShape] | None = None) -> Graph:
    """The nodes of `model`, its functions written out and its shapes inferred anew.

    Constant nodes are none: what they hold is a constant to those that read it.

    Raises:
        UsageError: sizes that do not fit the model.
        CannotConvertError: functions that cannot be written out.
    """
    copy = model.clone()
    if shapes:
        pin_inputs(copy, shapes)
    if copy.ir.functions:
        inline_functions(copy.ir)
    drop_declared(copy)
    infer(copy)
    return _Reader(copy).graph(copy.graph)


class _Reader:
    def __init__(self, model: Model) -> None:
        self._opsets = dict(model.ir.opset_imports)
        self._opset = model.opset
        self._tensors: dict[ir.Value, Tensor] = {}

    def graph(self, graph: ir.Graph) -> Graph:
        nodes = [self._node(node) for node in graph if not _is_constant(node)]
        outputs = frozenset(value.name or "" for value in graph.outputs)
        return Graph(linked(nodes), self._opset, outputs)

    def _node(self, node: ir.Node) -> Node:
        domain = "" if node.domain in _OWN else node.domain
        schema = _schema(node.op_type, self._opset if not domain else self._opsets.get(domain, 1), domain)
        inputs = tuple(None if value is None else self._tensor(value) for value in node.inputs)
        outputs = tuple(self._tensor(value) if value.name else None for value in node.outputs)
        first = next((tensor.name for tensor in outputs if tensor is not None), "")
        return Node(
            op=node.op_type,
            domain=domain,
            name=node.name or first,
            version=schema.since_version if schema else self._opsets.get(domain, 1),
            inputs=inputs,
            outputs=outputs,
            parameters=_parameters(schema, inputs, outputs),
            attributes=_attributes(schema, node),
            bodies=tuple(self.graph(body) for body in _bodies(node)),
        )

    def _tensor(self, value: ir.Value) -> Tensor:
        if value not in self._tensors:
            shape = None if value.shape is None else dims_of(value)
            is_preset = value.is_graph_input() and value.const_value is not None
            self._tensors[value] = Tensor(
                value.name or "", dtype_name(value.dtype), shape, _stored(value), is_preset
            )
        return self._tensors[value]


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and node.domain in _OWN


def _stored(value: ir.Value) -> Any:
    """An initializer's elements, or those of a Constant node; what a caller may feed instead is no constant."""
    if value.is_graph_input():
        return None
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    return ir.convenience.get_const_tensor(value) if producer is not None and _is_constant(producer) else None


@cache
def _schema(op: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _parameters(
    schema: onnx.defs.OpSchema | None, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None]
) -> dict[str, tuple[Tensor, ...]]:
    """The schema's names of parameters and of types to the tensors that stand there."""
    found: dict[str, tuple[Tensor, ...]] = {}
    if schema is None:
        return found
    for formals, tensors in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for index, tensor in enumerate(tensors):
            if tensor is not None and formals:
                formal = formals[min(index, len(formals) - 1)]  # the last may stand for several
                for key in {formal.name, formal.type_str}:
                    found[key] = (*found.get(key, ()), tensor)
    return found


def _attributes(schema: onnx.defs.OpSchema | None, node: ir.Node) -> dict[str, Any]:
    defaults = _defaults(schema) if schema else {}
    given = {name: _plain(each) for name, each in node.attributes.items() if not each.is_ref()}
    return defaults | {name: value for name, value in given.items() if value is not None}


@cache
def _defaults(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    values = {name: each.default_value for name, each in schema.attributes.items()}
    return {
        name: _text(onnx.helper.get_attribute_value(value)) for name, value in values.items() if value.name
    }


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _plain(attribute: ir.Attr) -> Any:
    """A number, a word or a tuple of these, a tensor; None for what is in `bodies`."""
    if attribute.type in _GRAPHS:
        return None
    value = attribute.value
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_text, value))
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _bodies(node: ir.Node) -> Iterable[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
