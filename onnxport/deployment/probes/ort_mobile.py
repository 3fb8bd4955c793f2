"""ONNX Runtime's mobile usability checker, which its wheel carries: what NNAPI and Core ML would take, by operators.

The checker knows names of operators, open shapes and, for Core ML, ranks; what else its tables say stands in them as
prose, which it leaves to the reader. It looks at the graph after basic optimizations, as the providers do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.tools import onnx_model_utils
from onnxruntime.tools.mobile_helpers import usability_checker as checker

from onnxport.deployment.probes import AskOptions, NotHere
from onnxport.deployment.probes.ort import REFUSALS
from onnxport.deployment.report import Extent, Fallback, Placement

_TABLES = Path(checker.__file__).parent
# Provider, its table, and the rank up to which it takes tensors.
_PROVIDERS = (
    ("NNAPI", "nnapi_supported_ops.md", 999),
    ("Core ML as a neural network", "coreml_supported_neuralnetwork_ops.md", 5),
    ("Core ML as an ML program", "coreml_supported_mlprogram_ops.md", 5),
)


def ask(path: Path, options: AskOptions) -> Placement:
    """The answer for the provider that takes most; a note for each."""
    answer = Placement(
        runtime=options.runtime,
        title=options.title,
        how="asked",
        extent="none",
        version=onnxruntime.__version__,
    )
    try:
        graph = _graph(path, options.folder)
    except REFUSALS as error:
        return answer.model_copy(update={"why": " ".join(str(error).split())[:300]})
    found = [(name, _checked(graph, table, rank)) for name, table, rank in _PROVIDERS]
    best_name, best = max(found, key=lambda each: each[1].num_supported_nodes)
    taken = best.num_supported_nodes
    extent: Extent = "all" if taken == best.num_nodes else "part" if taken else "none"
    return answer.model_copy(
        update={
            "extent": extent,
            "nodes": best.num_nodes,
            "taken": taken,
            "partitions": best.num_partitions,
            "fallbacks": _left(graph, best, best_name),
            "notes": tuple(_note(name, info) for name, info in found),
        }
    )


def _graph(path: Path, folder: Path) -> onnx.GraphProto:
    """The optimized graph with the shapes that the checker wants."""
    optimized = folder / "optimized.onnx"
    onnx_model_utils.optimize_model(path, optimized, use_external_initializers=True)
    model: onnx.ModelProto = onnx.load(optimized, load_external_data=False)
    return onnx.shape_inference.infer_shapes(model).graph


def _checked(graph: onnx.GraphProto, table: str, rank: int) -> Any:
    if not (_TABLES / table).exists():
        raise NotHere(f"ONNX Runtime {onnxruntime.__version__} has no {table}")
    operators = checker._SupportedOpsChecker(_TABLES / table)
    fixed = bool(graph.value_info) or len(graph.node) < 2  # it refuses to look at shapes where there are none
    return checker.check_partitioning(graph, operators, fixed, rank)


def _left(graph: onnx.GraphProto, info: Any, provider: str) -> tuple[Fallback, ...]:
    """The nodes in no group of the provider's."""
    kept = {id(node) for group in info.supported_groups for node in group}
    return tuple(
        Fallback(op=_qualified(node), node=node.name or node.output[0], why=_why(node, info, provider))
        for node in _nodes(graph)
        if id(node) not in kept
    )


def _why(node: onnx.NodeProto, info: Any, provider: str) -> str:
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
        f"worth trying as it is, says the checker: {verdict}"
    )
