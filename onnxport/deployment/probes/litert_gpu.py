"""LiteRT's own GPU runtime on this machine's Vulkan device: it takes a file whole or not at all.

For an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it, without --fit gpu.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from onnxport.converters.params import TfliteParams
from onnxport.core.errors import CannotConvertError, InputError, MissingDependencyError
from onnxport.deployment.litert.conversion import ConvertedModel, convert, convert_once
from onnxport.deployment.probes import NotAvailable, ProbeOptions, refusal_placement
from onnxport.deployment.probes.runs import describe_runs
from onnxport.deployment.report import Change, Placement
from onnxport.formats.model import Model
from onnxport.runtimes.litert_gpu import GpuRefusal, TfliteGpuRuntime

_MOST_NAMED = 3


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
        refused = _add_fallbacks(answer, model, refusal)
        if path.suffix != ".onnx" or not refused.fallbacks:
            return refused
        return refused.model_copy(update=_fitting(path, options.folder, len(refused.fallbacks)))
    except InputError as error:
        return answer.model_copy(update={"why": error.why or error.what})


def _add_fallbacks(answer: Placement, model: ConvertedModel, refusal: GpuRefusal) -> Placement:
    """Return the placement with a fallback for each node of an operator that the runtime names."""
    nodes = [node for each in model.subgraphs for node in each.graph.nodes]
    reasons: dict[str, str] = {}
    for reason in refusal.reasons:
        operator, _, why = reason.partition(": ")
        reasons.setdefault(operator, why)
    left = [node for node in nodes if node.op in reasons]
    found = {
        "nodes": len(nodes),
        "taken": len(nodes) - len(left) if left else 0,
        "fallbacks": tuple(model.fallback(node, reasons[node.op]) for node in left),
        "why": "" if left else refusal.why,
    }
    if left:
        graph = model.file.main.graph
        found |= describe_runs(graph, set(graph.nodes) - set(left))
    return answer.model_copy(update=found)


def _fitting(path: Path, folder: Path, mends: int) -> dict[str, object]:
    """Return the change `--fit gpu` where it makes the model whole, else a note that says why it does not."""
    to = folder / "fitted.tflite"
    try:
        convert(Model.load(path), to, TfliteParams(fit=("gpu",)))
        with TfliteGpuRuntime(to):
            command = "onnxport convert MODEL --to tflite --fit gpu"
            return {"change": Change(said="a file fitted to the GPU", command=command, mends=mends)}
    except (CannotConvertError, InputError) as error:
        refusals = getattr(error, "refusals", ())
        named = "; ".join(f"{each.op} {each.node!r} {each.why}" for each in refusals[:_MOST_NAMED])
        return {"notes": (f"--fit gpu does not make it whole: {named or error.why or error.what}",)}
