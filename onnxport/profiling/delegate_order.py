"""In which order LiteRT runs what it handed to a delegate: partition after partition, not as the file lists it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from onnxport.formats.graph import Node

Key = TypeVar("Key")


def delegated(nodes: Mapping[Key, Node], own: Collection[Key], there: Collection[str]) -> list[Key]:
    """The nodes that are not LiteRT's own, in the order of their execution.

    A partition is all nodes of one side that need nothing from a later one, found in the order of the file
    (tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets).

    Args:
        nodes: of the main graph, in the order of the file.
        own: those that LiteRT's kernels ran.
        there: values that are there before the first node runs.
    """
    made = {name for node in nodes.values() for name in node.output_names}
    ready = set(there)
    left = list(nodes)
    order: list[Key] = []

    def is_ready(key: Key) -> bool:
        return all(name in ready or name not in made for name in nodes[key].input_names)

    while left:
        first = next((key for key in left if is_ready(key)), None)
        if first is None:  # a file whose nodes need each other
            return [*order, *(key for key in left if key not in own)]
        side = first in own
        waiting = []
        for key in left:
            if (key in own) is side and is_ready(key):
                ready.update(nodes[key].output_names)
                order += [] if side else [key]
            else:
                waiting.append(key)
        left = waiting
    return order
