"""TFLite's GPU delegate: no GPU is asked, but the rules are the delegate's own, and sizes are what LiteRT says.

Of an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from pathlib import Path

from onnxport.core.errors import CannotConvertError
from onnxport.deployment.litert.conversion import Subject, subject
from onnxport.deployment.litert.gpu import Estimated, estimated, table
from onnxport.deployment.litert.interpreter import NotLoadedError, allocated, of_unknown_size, swap_main
from onnxport.deployment.probes import AskOptions
from onnxport.deployment.probes.conversion import refused
from onnxport.deployment.report import Extent, Placement
from onnxport.formats.graph.tflite import Subgraph

_DYNAMIC = "the size of {} is known at run time only, and the delegate takes graphs of known sizes alone"


def ask(path: Path, options: AskOptions) -> Placement:
    """Loads the file and holds its operators against the rules; nothing runs."""
    rules = table()
    answer = Placement(
        runtime=options.runtime,
        title=options.title,
        how="estimated",
        extent="none",
        version=rules.version,
        source=rules.sources[0],
        dated=rules.dated.isoformat(),
        notes=rules.notes,
    )
    try:
        return _placed(answer, subject(path, options.shared), options.threads)
    except CannotConvertError as error:
        return refused(path, answer, error)
    except NotLoadedError as error:
        return answer.model_copy(update={"extent": error.extent, "why": str(error)})


def _placed(answer: Placement, about: Subject, threads: int) -> Placement:
    found: list[Estimated] = []
    why = ""
    for each in about.subgraphs:
        dynamic = [] if why else _dynamic(about, each, threads)
        if dynamic:
            why = _DYNAMIC.format(repr(dynamic[0]) + (f" and {len(dynamic) - 1} more" if dynamic[1:] else ""))
        # LiteRT stops at the first graph that the delegate refuses as a whole, and what was taken before stays so.
        found.append(Estimated(left=dict.fromkeys(each.graph.nodes, "")) if why else estimated(each.graph))
    left = {node: reason for each in found for node, reason in each.left.items()}
    taken = [group for each in found for group in each.taken]
    count = sum(map(len, taken))
    extent: Extent = "all" if not left else "part" if count else "none"
    return answer.model_copy(
        update={
            "extent": extent,
            "nodes": count + len(left),
            "taken": count,
            "partitions": len(taken),
            "fallbacks": tuple(about.fallback(node, reason) for node, reason in left.items() if reason),
            "why": why,
        }
    )


def _dynamic(about: Subject, subgraph: Subgraph, threads: int) -> list[str]:
    """The values whose size follows from others' elements; names of the nodes that make them."""
    model = swap_main(about.file.path, subgraph.index) if subgraph.index else about.file.path
    interpreter, _ = allocated(model, threads, delegates=False)
    made = {tensor for node in subgraph.graph.nodes for tensor in node.outputs}
    candidates = [
        index
        for index, tensor in enumerate(subgraph.tensors)
        if tensor in made and tensor.dtype != "resource"
    ]
    return [subgraph.tensors[index].name for index in of_unknown_size(interpreter, candidates)]
