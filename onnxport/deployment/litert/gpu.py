"""What TFLite's GPU delegate would take of a graph, by its own rules (gpu.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from onnxport.deployment.estimation.support import find_refusal
from onnxport.deployment.estimation.table import Table
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.delegation import divide

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
    _bypass(nodes, {output: node.inputs[0] for output, node in halves.items()})
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


def _bypass(nodes: list[Node], halves: Mapping[Tensor | None, Tensor | None]) -> None:
    """Let `nodes` read the stored weights directly."""
    for node in nodes:
        node.inputs = tuple(halves.get(tensor, tensor) for tensor in node.inputs)
