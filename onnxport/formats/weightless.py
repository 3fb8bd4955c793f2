"""An ONNX graph without its weights, for shape inference."""

from __future__ import annotations

import onnx_ir as ir

# Larger tensors are weights; no shape, axes or sizes for shape inference have more elements.
_WEIGHT_ELEMENTS = 256


def without_weights(model: ir.Model) -> ir.Model:
    """Return a copy without weights and without declared shapes of computed values."""
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
    """Replace a large tensor by one of its type and shape alone: inference must not copy weights."""
    if tensor.size <= _WEIGHT_ELEMENTS or isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.ExternalTensor(
        "unread", 0, 0, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or ""
    )
