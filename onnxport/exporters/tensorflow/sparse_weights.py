"""Weights that a TFLite file stores sparsely, expanded: tf2onnx reads neither their form nor the operator DENSIFY.

The form has a level per axis, then one per axis of a block, in the order in which the numbers are stored. A dense level
has all its indices. A sparse one has, for each position of the level above, the indices that hold numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.arrays import Array


def expand_sparse_weights(model: Any, graph: Any) -> bool:
    """Make the result of each DENSIFY of a graph a constant; return whether there was one."""
    expansions = [each for each in graph.operators if _is_densify(model, each)]
    for operator in expansions:
        sparse, dense = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
        content = np.asarray(model.buffers[sparse.buffer].data, np.uint8)
        buffer = schema.BufferT()
        buffer.data = _densify(content, list(map(int, sparse.shape)), sparse.sparsity).ravel()
        # tf2onnx reads tensors that no operator does, too.
        dense.buffer = sparse.buffer = len(model.buffers)
        sparse.sparsity = None
        model.buffers.append(buffer)
        graph.operators.remove(operator)
    return bool(expansions)


def _is_densify(model: Any, operator: Any) -> bool:
    code = model.operatorCodes[operator.opcodeIndex]
    # Old files have the first 127 codes in another field.
    return bool(max(code.builtinCode, code.deprecatedBuiltinCode) == schema.BuiltinOperator.DENSIFY)


def _densify(content: Array, shape: Sequence[int], sparsity: Any) -> Array:
    """Return the bytes of the dense tensor, [*shape, width], of those that are stored; what is not stored is 0."""
    indices = _find_indices(sparsity)
    numbers = content.reshape(indices[0].size, -1)
    order = [int(each) for each in sparsity.traversalOrder]
    places = {axis: indices[level] for level, axis in enumerate(order)}
    blocked = [] if sparsity.blockMap is None else [int(each) for each in sparsity.blockMap]
    for number, axis in enumerate(blocked):
        inner = len(shape) + number
        size = int(sparsity.dimMetadata[order.index(inner)].denseSize)
        places[axis] = places[axis] * size + places[inner]
    dense = np.zeros((*shape, *numbers.shape[1:]), numbers.dtype)
    dense[tuple(places[axis] for axis in range(len(shape)))] = numbers
    return dense


def _find_indices(sparsity: Any) -> list[Array]:
    """Return the index at each level of every stored number, in their order."""
    positions, found = np.zeros(1, np.int64), list[Array]()
    for level in sparsity.dimMetadata:
        if level.format == schema.DimensionType.DENSE:
            counts = np.full(positions.size, int(level.denseSize))
            index = np.tile(np.arange(int(level.denseSize)), positions.size)
            below = np.repeat(positions * int(level.denseSize), counts) + index
        else:
            segments, indices = (
                np.asarray(each.values, np.int64) for each in (level.arraySegments, level.arrayIndices)
            )
            counts = segments[positions + 1] - segments[positions]
            before = np.cumsum(counts) - counts
            within = np.arange(int(counts.sum())) - np.repeat(before, counts)
            below = np.repeat(segments[positions], counts) + within
            index = indices[below]
        found = [*(np.repeat(each, counts) for each in found), index]
        positions = below
    return found
