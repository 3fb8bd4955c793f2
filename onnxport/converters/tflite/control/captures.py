"""Values that nested graphs (the branches of If, the body of Loop) read from the graph around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as onnx

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value


def find_captures(node: TflNode, tfl: TflBuilder, graphs: Sequence[onnx.Graph]) -> dict[onnx.Value, Value]:
    """Return the values around `node` that its graphs read, each constant or with a tensor.

    Initializers are left out: every block makes its own constants of them.
    """
    found: dict[onnx.Value, Value] = {}
    for value in dict.fromkeys(value for graph in graphs for value in _free_values(graph)):
        if value.const_value is not None:
            continue
        ours = tfl.scope.find(value)
        if ours is None:
            node.unsupported(f"reads {value.name!r}, the result of a node that is refused")
        if ours.constant is None and not ours.copies:
            tfl.tensor(ours)  # made inside, it would not be seen outside
        found[value] = ours
    return found


def nested_value(value: Value, tensor: Tensor | None) -> Value:
    """Return a captured value for a nested function: a constant, or the function's argument for its tensor."""
    copies = {} if tensor is None else {value.order: tensor}
    inner = Value(value.shape, value.dtype, constant=value.constant, copies=copies)
    inner.is_size, inner.is_natural = value.is_size, value.is_natural
    return inner


def _free_values(graph: onnx.Graph) -> Iterator[onnx.Value]:
    """Yield the values that a graph or one inside it reads and does not define; some more than once."""
    own = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        used = [value for value in node.inputs if value is not None]
        for attribute in node.attributes.values():
            if attribute.type == onnx.AttributeType.GRAPH:
                used += _free_values(attribute.as_graph())
        yield from (value for value in used if value not in own)
        own.update(node.outputs)
    yield from (value for value in graph.outputs if value not in own)
