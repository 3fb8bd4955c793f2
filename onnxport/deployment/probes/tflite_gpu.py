"""TFLite's GPU delegate, without a GPU: an estimate by the delegate's own rules, with the sizes that LiteRT infers.

For an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from onnxport.core.errors import CannotConvertError
from onnxport.deployment.estimation.support import find_refusal
from onnxport.deployment.estimation.table import Table
from onnxport.deployment.litert.conversion import ConvertedModel, convert_once
from onnxport.deployment.litert.interpreter import NotLoadedError, allocate, find_unsized, swap_main
from onnxport.deployment.probes import ProbeOptions, extent_of, refusal_placement
from onnxport.deployment.report import Placement
from onnxport.formats.graph import Node, OperatorGraph
from onnxport.formats.graph.delegation import divide
from onnxport.formats.graph.tflite import Subgraph

_LARGEST = 1  # max_delegated_partitions
_STAYS = "float16 weights become float32 on the CPU unless the delegate takes all nodes"


@dataclass(frozen=True)
class GpuEstimate:
    """The estimate for one subgraph."""

    taken: tuple[frozenset[Node], ...] = ()  # the nodes of each partition
    left: Mapping[Node, str] = field(default_factory=dict)  # every other node, with the reason


@cache
def gpu_table() -> Table:
    """Load the rules of the delegate."""
    import yaml

    text = files("onnxport.deployment.litert").joinpath("gpu.yaml").read_text(encoding="utf-8")
    return Table.model_validate(yaml.safe_load(text))


def estimate_gpu(graph: OperatorGraph) -> GpuEstimate:
    """Estimate what the delegate takes of a graph whose sizes are all known when it is loaded."""
    rules = gpu_table()
    halves = {node.outputs[0]: node for node in graph.nodes if _is_half(node)}
    nodes = [node for node in graph.nodes if node not in halves.values()]
    stored = {output: node.inputs[0] for output, node in halves.items()}
    for node in nodes:  # they read the stored weights directly
        node.inputs = tuple(stored.get(tensor, tensor) for tensor in node.inputs)
    refused: dict[Node, str] = {}
    for node in nodes:
        if reason := find_refusal(node, rules, refused):
            refused[node] = reason.why
    if not refused:
        return GpuEstimate((frozenset(graph.nodes),) if graph.nodes else ())
    groups = [each.nodes for each in divide(graph, set(nodes) - refused.keys()) if each.delegated]
    groups.sort(key=len, reverse=True)
    smaller = {
        node: f"it is in a group of {len(group)}, and the delegate takes only the largest group, of {len(groups[0])}"
        for group in groups[_LARGEST:]
        for node in group
    }
    left = refused | smaller | dict.fromkeys(halves.values(), _STAYS)
    return GpuEstimate(tuple(frozenset(group) for group in groups[:_LARGEST]), left)


def _is_half(node: Node) -> bool:
    """Return whether `node` widens float16 weights, which the delegate reads as they are."""
    weight = node.inputs[0] if node.inputs else None
    return node.op == "DEQUANTIZE" and weight is not None and weight.is_constant and weight.dtype == "float16"


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
        nothing = GpuEstimate(left=dict.fromkeys(each.graph.nodes, ""))
        found.append(nothing if why else estimate_gpu(each.graph))
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
    computed = (each for each in enumerate(subgraph.tensors) if each[1] in made)
    candidates = [index for index, tensor in computed if tensor.dtype != "resource"]
    return [subgraph.tensors[index].name for index in find_unsized(interpreter, candidates)]
