"""ONNX Runtime's WebGPU provider on this machine's GPU, one in software too: which nodes it leaves to the CPU."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.probes import NotAvailable, ProbeOptions, extent_of
from onnxport.deployment.probes.runs import describe_runs
from onnxport.deployment.report import Fallback, Placement
from onnxport.formats.model import Model
from onnxport.runtimes.ort.webgpu import DISTRIBUTION, WebgpuRefusal, WebgpuRuntime


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Load the file for the GPU alone; nothing runs."""
    answer = options.placement(version(DISTRIBUTION))
    try:
        with WebgpuRuntime(path) as runtime:
            nodes = runtime.node_count
            found = {
                "extent": "all",
                "nodes": nodes,
                "taken": nodes,
                "notes": (f"asked on {runtime.device}", *runtime.remarks),
            }
            return answer.model_copy(update=found)
    except MissingDependencyError as error:
        raise NotAvailable(error.what, fix=error.fix) from error
    except WebgpuRefusal as refusal:
        taken = refusal.count - len(refusal.nodes)
        fallbacks = tuple(
            Fallback(op=node.op, node=node.name, why="has no kernel there at its opset and types")
            for node in refusal.nodes
        )
        found = {
            **_runs(path, {node.name for node in refusal.nodes}),
            "extent": extent_of(taken, refusal.count) if fallbacks else "none",
            "nodes": refusal.count,
            "taken": taken,
            "fallbacks": fallbacks,
            "why": "" if fallbacks else refusal.why,
        }
        return answer.model_copy(update=found)
    except InputError as error:
        return answer.model_copy(update={"why": error.why or error.what})


def _runs(path: Path, left: set[str]) -> dict[str, Any]:
    """Describe the runs of nodes of the file's graph; nothing where ONNX Runtime's optimizations renamed the nodes."""
    if path.suffix != ".onnx" or not left:
        return {}
    graph = estimation_graph(Model.load(path))
    names = {node.name for node in graph.nodes}
    return (
        describe_runs(graph, [node for node in graph.nodes if node.name not in left]) if left <= names else {}
    )
