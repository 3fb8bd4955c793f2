"""LiteRT's own GPU runtime on this machine's Vulkan device: it takes a file whole or not at all.

For an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it, without --fit gpu.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from onnxport.core.errors import CannotConvertError, InputError, MissingDependencyError
from onnxport.deployment.litert.conversion import ConvertedModel, convert_once
from onnxport.deployment.probes import NotAvailable, ProbeOptions, refusal_placement
from onnxport.deployment.report import Fallback, Placement
from onnxport.runtimes.litert_gpu import GpuRefusal, TfliteGpuRuntime

_FIT = "onnxport convert --to tflite --fit gpu rewrites most of what it lacks"


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Compile the file for the GPU; nothing runs."""
    answer = options.placement(f"LiteRT {version('ai-edge-litert')}")
    try:
        model = convert_once(path, options.shared)
        with TfliteGpuRuntime(model.file.path) as runtime:
            nodes = sum(len(each.graph.nodes) for each in model.subgraphs)
            found = {"extent": "all", "nodes": nodes, "taken": nodes}
            return answer.model_copy(update={**found, "notes": (f"asked on {runtime.device}",)})
    except CannotConvertError as error:
        return refusal_placement(path, answer, error)
    except MissingDependencyError as error:
        raise NotAvailable(error.what, fix=error.fix) from error
    except GpuRefusal as refusal:
        return _add_fallbacks(answer, model, refusal)
    except InputError as error:
        return answer.model_copy(update={"why": error.why or error.what})


def _add_fallbacks(answer: Placement, model: ConvertedModel, refusal: GpuRefusal) -> Placement:
    """Return the placement with a fallback for each node of an operator that the runtime names."""
    nodes = [node for each in model.subgraphs for node in each.graph.nodes]
    reasons: dict[str, str] = {}
    for reason in refusal.reasons:
        operator, _, why = reason.partition(": ")
        reasons.setdefault(operator, why)
    fallbacks: tuple[Fallback, ...] = tuple(
        model.fallback(node, reasons[node.op]) for node in nodes if node.op in reasons
    )
    taken = len(nodes) - len(fallbacks) if fallbacks else 0
    why = "" if fallbacks else refusal.why
    notes = (_FIT,) if fallbacks else ()
    found = {"nodes": len(nodes), "taken": taken, "fallbacks": fallbacks, "why": why, "notes": notes}
    return answer.model_copy(update=found)
