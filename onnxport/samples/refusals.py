"""Counterexamples: what ONNX Runtime says of values that it refuses, as bounds of the inputs that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxport.formats.model import Model

# "Gather 'embed': indices element out of data bounds, idx=9 must be within the inclusive range [-4,3]"
_NODE = re.compile(r"^(\w+) '([^']*)': ")
_RANGE = re.compile(
    r"(-?\d+) (?:must be within the inclusive range|is not in valid range) \[(-?\d+), ?(-?\d+)\]"
)

# Operators that refuse an index, their second input: constant ones say nothing of what they read.
_INDEXED = frozenset("Gather GatherElements GatherND ScatterElements ScatterND".split())


@dataclass(frozen=True)
class Refusal:
    """A value that a node refused.

    Attributes:
        op, node: the operator and the name of the node.
        value: the refused one.
        low, high: inclusive bounds of what it takes.
    """

    op: str
    node: str
    value: int
    low: int
    high: int


def parse_refusal(message: str) -> Refusal | None:
    """Return the refusal that a message of ONNX Runtime describes; None where it names no bounds."""
    node, bounds = _NODE.search(message), _RANGE.search(message)
    if node is None or bounds is None:
        return None
    value, low, high = map(int, bounds.groups())
    return Refusal(node[1], node[2], value, low, high)


def integer_inputs_of(model: Model, refusal: Refusal) -> frozenset[str]:
    """Return the graph inputs of integers that the node's values are computed from."""
    inputs = {id(value): value for value in model.graph.inputs}
    return frozenset(
        value.name
        for node in model.graph
        if node.op_type == refusal.op and (node.name or "") == refusal.node
        for value in _ancestors(node.inputs[1:2] if refusal.op in _INDEXED else node.inputs)
        if id(value) in inputs and value.name and value.dtype is not None and value.dtype.is_integer()
    )


def _ancestors(values: Sequence[ir.Value | None]) -> Iterator[ir.Value]:
    """Yield these values and all that they are computed from."""
    pending = [value for value in values if value is not None]
    seen = {id(value) for value in pending}
    while pending:
        value = pending.pop()
        yield value
        producer = value.producer()
        fresh = [] if producer is None else [each for each in producer.inputs if each is not None]
        fresh = [each for each in fresh if id(each) not in seen]
        seen.update(map(id, fresh))
        pending.extend(fresh)
