"""What a model does not need and `onnxport optimize` removes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.optimizers.unused_inputs import prune_inputs

# Bytes; smaller constants may repeat.
_TELLING = 1024
# Bytes at the start that are compared before the rest.
_START = 4096


def find_waste(model: Model) -> Iterator[str]:
    """Yield a sentence for each kind of waste."""
    rest = model.clone()
    unread = prune_inputs(rest)
    if unread:
        yield f"no output depends on {_inputs(len(unread))} {', '.join(map(repr, unread))} (optimize --prune-unused)"
    if idle := _nodes(model) - _nodes(rest):
        yield f"nodes that no output needs: {idle}"
    twins, size = _find_duplicates(model)
    if twins:
        yield f"duplicate weights: {twins}, {size:,} bytes"


def _inputs(count: int) -> str:
    return "the input" if count == 1 else "the inputs"


def _nodes(model: Model) -> int:
    return sum(1 for _ in model.graph.all_nodes())


def _find_duplicates(model: Model) -> tuple[int, int]:
    """Return how many initializers equal an earlier one, and their bytes."""
    alike: dict[object, list[np.ndarray[Any, Any]]] = defaultdict(list)
    count = size = 0
    for graph in model.ir.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes < _TELLING:
                continue
            data = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
            group = alike[tensor.dtype, tuple(tensor.shape.numpy()), data[:_START].tobytes()]
            if any(np.array_equal(data, other) for other in group):
                count, size = count + 1, size + tensor.nbytes
            else:
                group.append(data)
    return count, size
