"""Caches of keys and values: TensorScatter."""

from __future__ import annotations

from onnxport.optimizers.rewrites.registry import Rewrite, rewrites
from onnxport.optimizers.rewrites.sizes import arange, integers, size_of


@rewrites("TensorScatter")
def tensor_scatter(node: Rewrite) -> None:
    """Write each batch entry's update into the cache from its own position on (ONNX TensorScatter-24)."""
    cache, update, starts = node.input(0), node.input(1), node.optional(2)
    rank = len(node.shape(cache))
    axis = node.attribute("axis", -2) % rank
    places = node.op("Unsqueeze", arange(node, size_of(node, update, axis)), integers(0))
    if starts is not None:
        places = node.op("Add", places, node.op("Unsqueeze", starts, integers(1)))
    if node.attribute("mode", "linear") == "circular":
        places = node.op("Mod", places, size_of(node, cache, axis))
    between = [place for place in range(1, rank) if place != axis]
    places = node.op("Unsqueeze", places, integers(*between)) if between else places
    indices = node.op("Expand", places, node.op("Shape", update))
    node.emit(node.op("ScatterElements", cache, indices, update, axis=axis))
