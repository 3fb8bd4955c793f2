"""TFLite's GPU delegate, without a GPU: an estimate by the delegate's own rules, with the sizes that LiteRT infers.

For an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from pathlib import Path

from onnxport.core.errors import CannotConvertError
from onnxport.deployment.litert.conversion import ConvertedModel, convert_once
from onnxport.deployment.litert.gpu import GpuEstimate, estimate_gpu, gpu_table
from onnxport.deployment.litert.interpreter import NotLoadedError, allocate, find_unsized, swap_main
from onnxport.deployment.probes import ProbeOptions, extent_of, refusal_placement
from onnxport.deployment.report import Placement
from onnxport.formats.graph.tflite import Subgraph

_DYNAMIC = "the size of {} is known only at run time, and the delegate takes only graphs of known sizes"


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Load the file and check its operators against the rules; nothing runs."""
    answer = gpu_table().placement(options.runtime, options.title)
    try:
        return _summarize(answer, convert_once(path, options.shared), options.threads)
    except CannotConvertError as error:
        return refusal_placement(path, answer, error)
    except NotLoadedError as error:
        return answer.model_copy(update={"extent": error.extent, "why": str(error)})


def _summarize(answer: Placement, model: ConvertedModel, threads: int) -> Placement:
    found: list[GpuEstimate] = []
    why = ""
    for each in model.subgraphs:
        names = [] if why else _find_dynamic(model, each, threads)
        if names:
            why = _DYNAMIC.format(repr(names[0]) + (f" and {len(names) - 1} more" if names[1:] else ""))
        # LiteRT stops at the first graph that the delegate refuses as a whole; it keeps what was taken before.
        found.append(
            GpuEstimate(left=dict.fromkeys(each.graph.nodes, "")) if why else estimate_gpu(each.graph)
        )
    left = {node: reason for each in found for node, reason in each.left.items()}
    taken = [group for each in found for group in each.taken]
    count = sum(map(len, taken))
    return answer.model_copy(
        update={
            "extent": extent_of(count, count + len(left)),
            "nodes": count + len(left),
            "taken": count,
            "partitions": len(taken),
            "fallbacks": tuple(model.fallback(node, reason) for node, reason in left.items() if reason),
            "why": why,
        }
    )


def _find_dynamic(model: ConvertedModel, subgraph: Subgraph, threads: int) -> list[str]:
    """Return the names of computed values whose size depends on the elements of others."""
    path = model.file.path
    interpreter, _ = allocate(
        swap_main(path, subgraph.index) if subgraph.index else path, threads, delegates=False
    )
    made = {tensor for node in subgraph.graph.nodes for tensor in node.outputs}
    candidates = [
        index
        for index, tensor in enumerate(subgraph.tensors)
        if tensor in made and tensor.dtype != "resource"
    ]
    return [subgraph.tensors[index].name for index in find_unsized(interpreter, candidates)]
