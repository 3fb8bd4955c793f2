"""Types and shapes of a model's values, inferred from its inputs without reading weights."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.shape_inference
import onnx_ir as ir

from onnxport.formats.weightless import without_weights


class InferredTypes:
    """Types and shapes of values; see `infer_types`."""

    def __init__(self, found: dict[ir.Value, tuple[ir.TypeProtocol | None, ir.Shape | None]]) -> None:
        self._found = found

    def type(self, value: ir.Value) -> ir.TypeProtocol | None:
        """Return the declared type, else the inferred one."""
        if value.type is not None and value.dtype != ir.DataType.UNDEFINED:
            return value.type
        if value.const_value is not None:
            return ir.TensorType(value.const_value.dtype)
        return self._found.get(value, (None, None))[0]

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Return the element type of a tensor, or of a sequence's tensors."""
        found = self.type(value)
        return None if found is None or found.dtype == ir.DataType.UNDEFINED else found.dtype

    def shape(self, value: ir.Value) -> list[int | None] | None:
        """Return sizes that hold for every input, None for an open one; None if the rank is unknown."""
        if value.is_initializer() and value.const_value is not None:
            return [int(dim) for dim in value.const_value.shape.numpy()]
        shape = self._found.get(value, (None, None))[1]
        return None if shape is None else [dim if isinstance(dim, int) else None for dim in shape]

    def hand_over(self, old: ir.Value, new: ir.Value) -> None:
        """Move the knowledge of `old` to `new`."""
        if old in self._found:
            self._found[new] = self._found.pop(old)


def infer_types(model: ir.Model) -> InferredTypes:
    """Infer types and shapes of all values from the graph's inputs.

    Declared shapes of intermediates are often wrong and not used. Declared types are: behind an unknown operator
    there is nothing else.
    """
    proto = ir.to_proto(without_weights(model))
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return InferredTypes({})  # every adapter has a form for the unknown
    if any(node.graph is not model.graph for node in model.graph.all_nodes()):
        pairs = zip(_values(model), _values(ir.from_proto(proto)), strict=True)
        return InferredTypes({value: (twin.type, twin.shape) for value, twin in pairs})
    told = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    # To read the whole model back takes as long as the inference.
    types = {each.name: each.type for each in told}
    return InferredTypes({value: _read(types[value.name]) for value in _values(model) if value.name in types})


def _read(declared: onnx.TypeProto) -> tuple[ir.TypeProtocol | None, ir.Shape | None]:
    found = ir.serde.deserialize_type_proto_for_type(declared)
    return found, ir.serde.deserialize_type_proto_for_shape(declared)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Iterate over graph inputs and node results, in an order that a copy of the model shares."""
    for graph in model.graphs():
        yield from graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs
