"""ONNX Runtime's WebGPU provider on this machine's GPU, one in software too: which nodes it leaves to the CPU."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from onnxport.core.errors import InputError, MissingDependencyError
from onnxport.deployment.probes import NotAvailable, ProbeOptions, extent_of
from onnxport.deployment.report import Fallback, Placement
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
            "extent": extent_of(taken, refusal.count) if fallbacks else "none",
            "nodes": refusal.count,
            "taken": taken,
            "fallbacks": fallbacks,
            "why": "" if fallbacks else refusal.why,
        }
        return answer.model_copy(update=found)
    except InputError as error:
        return answer.model_copy(update={"why": error.why or error.what})
