"""Types and shapes of a model's values, inferred from its inputs on without touching a weight."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.shape_inference
import onnx_ir as ir

# A tensor with more elements carries no shape, axes or sizes that shape inference would want to read.
_WEIGHT_ELEMENTS = 256


class Known:
    """What is known of values: nothing at first, see `inferred`."""

    def __init__(self, found: dict[ir.Value, tuple[ir.TypeProtocol | None, ir.Shape | None]]) -> None:
        self._found = found

    def type(self, value: ir.Value) -> ir.TypeProtocol | None:
        """As the file declares it, where it does."""
        if value.type is not None and value.dtype != ir.DataType.UNDEFINED:
            return value.type
        if value.const_value is not None:
            return ir.TensorType(value.const_value.dtype)
        return self._found.get(value, (None, None))[0]

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Of a tensor's elements, or of those of a sequence's tensors."""
        found = self.type(value)
        return None if found is None or found.dtype == ir.DataType.UNDEFINED else found.dtype

    def shape(self, value: ir.Value) -> list[int | None] | None:
        """Sizes that hold whatever is fed, None for an open one; None when not even the rank is known."""
        if value.is_initializer() and value.const_value is not None:
            return [int(dim) for dim in value.const_value.shape.numpy()]
        shape = self._found.get(value, (None, None))[1]
        return None if shape is None else [dim if isinstance(dim, int) else None for dim in shape]

    def hand_over(self, old: ir.Value, new: ir.Value) -> None:
        """What was known of `old` is known of `new` instead."""
        if old in self._found:
            self._found[new] = self._found.pop(old)


def inferred(model: ir.Model) -> Known:
    """Types and shapes of all values, inferred from the graph's inputs on.

    The shapes that a file declares for its intermediates are often wrong, and a rewrite that relied on one
    would be too. Declared types stay: after an operator that ONNX does not know they are all there is.
    """
    proto = ir.to_proto(_bare(model))
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return Known({})  # every adapter has a form for the unknown
    pairs = zip(_values(model), _values(ir.from_proto(proto)), strict=True)
    return Known({value: (twin.type, twin.shape) for value, twin in pairs})


def _bare(model: ir.Model) -> ir.Model:
    """A copy without weights and without the declared shapes of what nodes make."""
    bare = model.clone()
    for graph in bare.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _without_bytes(value.const_value)
        for value in [*graph.outputs, *(graph.inputs if graph is not bare.graph else ())]:
            value.shape = None
    for node in bare.graph.all_nodes():
        for value in node.outputs:
            value.shape = None
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                node.attributes.add(ir.AttrTensor(name, _without_bytes(attribute.as_tensor())))
    return bare


def _without_bytes(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A stand-in for a big tensor with its type and shape only: inference must not copy weights."""
    if tensor.size <= _WEIGHT_ELEMENTS or isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.ExternalTensor(
        "unread", 0, 0, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or ""
    )


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value that a graph takes in or a node makes, in an order that a copy of the model shares."""
    for graph in model.graphs():
        yield from graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs
