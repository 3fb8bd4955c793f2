"""ONNX Runtime's mobile usability checker, part of its wheel: what NNAPI and Core ML would take, by operators.

The checker knows operators by name, open shapes and, for Core ML, ranks, after basic optimizations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.tools import onnx_model_utils
from onnxruntime.tools.mobile_helpers import usability_checker as checker

from onnxport.deployment.probes import NotAvailable, ProbeOptions, extent_of
from onnxport.deployment.probes.ort import REFUSALS
from onnxport.deployment.report import Fallback, Placement

_TABLES = Path(checker.__file__).parent
# Provider, its table, and the rank up to which it takes tensors.
_PROVIDERS = (
    ("NNAPI", "nnapi_supported_ops.md", 999),
    ("Core ML as a neural network", "coreml_supported_neuralnetwork_ops.md", 5),
    ("Core ML as an ML program", "coreml_supported_mlprogram_ops.md", 5),
)


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Check the model for each provider; the answer is for the one that takes most, with a note for each."""
    answer = options.placement(onnxruntime.__version__)
    try:
        optimized = options.folder / "optimized.onnx"
        onnx_model_utils.optimize_model(path, optimized, use_external_initializers=True)
        model: onnx.ModelProto = onnx.load(optimized, load_external_data=False)
        graph = onnx.shape_inference.infer_shapes(model).graph  # the checker needs shapes
    except REFUSALS as error:
        return answer.model_copy(update={"why": " ".join(str(error).split())[:300]})
    found = [(name, _check(graph, table, rank)) for name, table, rank in _PROVIDERS]
    best_name, best = max(found, key=lambda each: each[1].num_supported_nodes)
    taken = best.num_supported_nodes
    return answer.model_copy(
        update={
            "extent": extent_of(taken, best.num_nodes),
            "nodes": best.num_nodes,
            "taken": taken,
            "partitions": best.num_partitions,
            "fallbacks": _find_fallbacks(graph, best, best_name),
            "notes": tuple(_note(name, info) for name, info in found),
        }
    )


def _check(graph: onnx.GraphProto, table: str, rank: int) -> Any:
    if not (_TABLES / table).exists():
        raise NotAvailable(f"ONNX Runtime {onnxruntime.__version__} has no {table}")
    operators = checker._SupportedOpsChecker(_TABLES / table)
    fixed = bool(graph.value_info) or len(graph.node) < 2  # without shapes it does not check them
    return checker.check_partitioning(graph, operators, fixed, rank)


def _find_fallbacks(graph: onnx.GraphProto, info: Any, provider: str) -> tuple[Fallback, ...]:
    """Return the nodes in no group of the provider."""
    kept = {id(node) for group in info.supported_groups for node in group}
    return tuple(
        Fallback(op=_qualified(node), node=node.name or node.output[0], why=_reason(node, info, provider))
        for node in _nodes(graph)
        if id(node) not in kept
    )


def _reason(node: onnx.NodeProto, info: Any, provider: str) -> str:
    named = f"{node.domain or 'ai.onnx'}:{node.op_type}"
    if named in info.unsupported_ops:
        return f"{provider} has no {_qualified(node)}"
    if named in info.ops_with_unsupported_rank:
        return "open shapes, or a rank that is too high"
    return "the shape of an input is open"


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes(attribute.g)
    return found


def _qualified(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _note(name: str, info: Any) -> str:
    verdict = info.suitability().name.lower()
    return (
        f"{name}: {info.num_supported_nodes} of {info.num_nodes} nodes in {info.num_partitions} groups; "
        f"the checker's verdict on trying it as it is: {verdict}"
    )
