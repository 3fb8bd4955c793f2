"""What TFLite's GPU delegate would take of a file, by its own rules (gpu.yaml); there is no GPU to ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from onnxport.deployment.estimation.support import refusal
from onnxport.deployment.estimation.table import Table
from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.delegation import divide

_LARGEST = 1  # max_delegated_partitions
_STAYS = "float16 weights become float32 on the CPU where the delegate does not take all"


@dataclass(frozen=True)
class Estimated:
    """One subgraph.

    Attributes:
        taken: a set of nodes for each partition.
        left: every other node, and why.
    """

    taken: tuple[frozenset[Node], ...] = ()
    left: Mapping[Node, str] = field(default_factory=dict)


@cache
def table() -> Table:
    """What the delegate asks of a node."""
    import yaml

    text = files("onnxport.deployment.litert").joinpath("gpu.yaml").read_text(encoding="utf-8")
    return Table.model_validate(yaml.safe_load(text))


def estimated(graph: OperatorGraph) -> Estimated:
    """What the delegate takes of a graph all of whose sizes are known when it is loaded."""
    rules = table()
    halves = {node.outputs[0]: node for node in graph.nodes if _is_half(node)}
    nodes = [node for node in graph.nodes if node not in halves.values()]
    _spread(nodes, {output: node.inputs[0] for output, node in halves.items()})
    refused: dict[Node, str] = {}
    for node in nodes:
        if reason := refusal(node, rules, refused):
            refused[node] = reason.why
    if not refused:
        return Estimated((frozenset(graph.nodes),) if graph.nodes else ())
    groups = [each.nodes for each in divide(graph, set(nodes) - refused.keys()) if each.delegated]
    groups.sort(key=len, reverse=True)
    smaller = {
        node: f"it is in a group of {len(group)}, and the delegate takes the largest alone, of {len(groups[0])}"
        for group in groups[_LARGEST:]
        for node in group
    }
    left = refused | smaller | dict.fromkeys(halves.values(), _STAYS)
    return Estimated(tuple(frozenset(group) for group in groups[:_LARGEST]), left)


def _is_half(node: Node) -> bool:
    """Weights stored as float16: the delegate reads them so, without the operator that widens them."""
    weight = node.inputs[0] if node.inputs else None
    return node.op == "DEQUANTIZE" and weight is not None and weight.is_constant and weight.dtype == "float16"


def _spread(nodes: list[Node], halves: Mapping[Tensor | None, Tensor | None]) -> None:
    """Has `nodes` read the stored weights themselves."""
    for node in nodes:
        node.inputs = tuple(halves.get(tensor, tensor) for tensor in node.inputs)
