"""How a graph would alternate between an accelerator and the CPU: runs of nodes, and the values copied between them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from onnxport.deployment.report import Run
from onnxport.formats.graph import Node, OperatorGraph
from onnxport.formats.graph.delegation import divide


def describe_runs(graph: OperatorGraph, taken: Collection[Node]) -> dict[str, Any]:
    """Return `partitions`, `copies` and `runs` of a Placement whose runtime takes the nodes `taken` of `graph`."""
    subsets = divide(graph, taken)
    sides = {node: subset.delegated for subset in subsets for node in subset.nodes}
    made = {tensor: node for node in graph.nodes for tensor in node.outputs if tensor is not None}
    copied = {
        tensor
        for node in graph.nodes
        for tensor in node.reads()
        if tensor in made and sides[made[tensor]] is not sides[node]
    }
    runs = tuple(
        Run(
            accelerated=subset.delegated,
            nodes=len(subset.nodes),
            first=subset.nodes[0].label,
            last=subset.nodes[-1].label,
        )
        for subset in subsets
    )
    return {"partitions": sum(each.accelerated for each in runs), "copies": len(copied), "runs": runs}
