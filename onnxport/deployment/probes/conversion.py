"""What runtimes have in common that are asked by way of our own conversion of the model."""

from __future__ import annotations

from pathlib import Path

from onnxport.core.errors import CannotConvertError
from onnxport.deployment.report import Fallback, Placement
from onnxport.formats.model import Model


def refused(path: Path, placement: Placement, error: CannotConvertError) -> Placement:
    """`placement` of a model that our converter refuses: there is no product to ask about."""
    nodes = node_count(Model.load(path))
    fallbacks = tuple(Fallback(op=each.op, node=each.node, why=each.why) for each in error.refusals)
    return placement.model_copy(
        update={
            "extent": "none",
            "nodes": nodes,
            "taken": max(nodes - len(fallbacks), 0) if fallbacks else 0,
            "partitions": None,
            "fallbacks": fallbacks,
            "why": "" if fallbacks else "; ".join(part for part in (error.what, error.why) if part),
        }
    )


def node_count(model: Model) -> int:
    """Nodes but for constants, those in bodies included."""
    return sum(1 for node in model.graph.all_nodes() if node.op_type != "Constant")
