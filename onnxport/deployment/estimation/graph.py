"""An ONNX model as data files see it, and what their rules ask of a node."""

from __future__ import annotations

from functools import cache
from itertools import chain, repeat
from typing import Any

import onnx

from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.onnx import from_ir, operator_schema
from onnxport.formats.model import Model
from onnxport.optimizers.opset import inline_functions
from onnxport.optimizers.shape_inference import drop_declared, infer

_SIZES = ("Shape", "Size")


def estimation_graph(model: Model) -> OperatorGraph:
    """Return the linked graph of `model` with inlined functions, inferred shapes and default attributes.

    Constant nodes are dropped: what they hold is constant to its readers. CannotConvertError if functions stay.
    """
    copy = model.clone()
    if copy.ir.functions:
        inline_functions(copy.ir)
    drop_declared(copy)
    infer(copy)
    graph = from_ir(copy.ir)
    for each in graph.graphs():
        each.nodes = [node for node in each.nodes if (node.op, node.domain) != ("Constant", "")]
        for node in each.nodes:
            node.attributes = {**_defaults(node.op, node.version, node.domain), **node.attributes}
    return graph.link()


@cache
def _defaults(op: str, version: int, domain: str) -> dict[str, Any]:
    schema = operator_schema(op, version, domain)
    values = {name: each.default_value for name, each in schema.attributes.items()} if schema else {}
    return {
        name: _text(onnx.helper.get_attribute_value(value)) for name, value in values.items() if value.name
    }


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_text, value))
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def find_tensors(node: Node, key: str) -> tuple[Tensor, ...]:
    """Return the tensors of `node` that `key` of a data file names (`table.Rule`)."""
    if key in ("inputs", "outputs", "all"):
        sides = (node.inputs if key != "outputs" else ()) + (node.outputs if key != "inputs" else ())
        return tuple(each for each in sides if each is not None)
    side, position = (node.outputs, key[4:]) if key.startswith("out ") else (node.inputs, key)
    if position.isdecimal():
        found = side[int(position)] if int(position) < len(side) else None
        return () if found is None else (found,)
    return tuple(each for each, names in _parameters(node) if key in names)


def _parameters(node: Node) -> list[tuple[Tensor, tuple[str, str]]]:
    """Return each tensor with the schema's name of its parameter and of its type: "X", "T"."""
    schema = operator_schema(node.op, node.version, node.domain)
    if schema is None:
        return []
    found = []
    for formals, tensors in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        # The last formal parameter may stand for several tensors.
        paired = zip(tensors, chain(formals, repeat(formals[-1] if formals else None)), strict=False)
        found += [
            (each, (formal.name, formal.type_str)) for each, formal in paired if each is not None and formal
        ]
    return found


def is_derived(tensor: Tensor, reader: Node) -> bool:
    """Return whether `tensor`, which `reader` reads, is computed from constants and sizes alone."""
    pending, seen = [(tensor, reader)], set()
    while pending:
        each, node = pending.pop()
        if each.is_constant or each.is_preset or each in seen:
            continue
        seen.add(each)
        producer = next((one for one in node.producers if each in one.outputs), None)
        if producer is None:
            return False
        if producer.op not in _SIZES:
            pending += [(operand, producer) for operand in producer.inputs if operand is not None]
    return True


def is_folded(node: Node) -> bool:
    """Return whether all that `node` computes follows from constants and sizes."""
    operands = [each for each in node.inputs if each is not None]
    return node.op in _SIZES or (bool(operands) and all(is_derived(each, node) for each in operands))
