"""What a graph holds, counted: what a pass changed is the difference of two counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxport.model import Model


@dataclass(frozen=True)
class Census:
    """Nodes and stored tensors, those of subgraphs and model-local functions included.

    Attributes:
        parameters: elements of all stored tensors.
        bytes: what these take.
    """

    nodes: int
    parameters: int
    bytes: int


def census(model: Model) -> Census:
    """Counts without reading a weight."""
    tensors = list(_tensors(model.ir))
    return Census(
        nodes=sum(1 for _ in _nodes(model.ir)),
        parameters=sum(tensor.size for tensor in tensors),
        bytes=sum(tensor.nbytes for tensor in tensors if tensor.dtype != ir.DataType.STRING),
    )


def row(name: str, before: Census, after: Census, skipped: str = "") -> dict[str, Any]:
    """What the report says of one pass: by how much each count changed, below 0 where there is less.

    Args:
        skipped: why the pass was left out; empty where it was not.
    """
    return {
        "pass": name,
        "nodes": after.nodes - before.nodes,
        "parameters": after.parameters - before.parameters,
        "bytes": after.bytes - before.bytes,
        "skipped": skipped,
    }


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Initializers, and what exporters keep in Constant nodes."""
    for graph in model.graphs():
        yield from (
            value.const_value for value in graph.initializers.values() if value.const_value is not None
        )
    for node in _nodes(model):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                yield attribute.as_tensor()
