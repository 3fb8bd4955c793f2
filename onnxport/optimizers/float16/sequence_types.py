"""Sequence types, where onnx-ir's inference (1.1) assigns the type of the tensors in them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

_MAKING = frozenset(
    "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceMap SplitToSequence".split()
)


def mark_sequences(graph: ir.Graph) -> None:
    """Set the type of values that are sequences, in place."""
    for node in graph:
        if node.op_type in _MAKING and node.domain in ("", "ai.onnx"):
            _mark(node.outputs[0])
        elif node.op_type == "Identity":
            _propagate(node.inputs[:1], node.outputs)
        elif node.op_type == "If":
            for name in ("then_branch", "else_branch"):
                branch = node.attributes[name].as_graph()
                mark_sequences(branch)
                _propagate(branch.outputs, node.outputs)
        elif node.op_type == "Loop":
            body = node.attributes["body"].as_graph()
            _propagate(node.inputs[2:], body.inputs[2:])
            mark_sequences(body)
            _propagate(body.outputs[1:], node.outputs)


def _propagate(sources: Iterable[ir.Value | None], results: Iterable[ir.Value]) -> None:
    for source, result in zip(sources, results, strict=False):
        if source is not None and isinstance(source.type, ir.SequenceType):
            _mark(result)


def _mark(value: ir.Value) -> None:
    if isinstance(value.type, ir.TensorType):
        value.type = ir.SequenceType(value.type)
        value.shape = None
