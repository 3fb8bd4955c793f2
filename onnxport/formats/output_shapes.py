"""Shapes that a file declares wrongly: an output without one, which ONNX Runtime infers, and sizes of -1.

skl2onnx leaves out the shapes of further outputs.
"""

from __future__ import annotations

from contextlib import suppress

import onnx
import onnx_ir as ir

# Bytes that protobuf serializes at most, which shape inference needs.
_PROTOBUF_LIMIT = 2**31 - 1


def infer_output_shapes(proto: onnx.ModelProto) -> bool:
    """Declare the shapes of outputs that lack one, in place; return whether each tensor has one now."""
    missing = [output for output in proto.graph.output if _lacks_shape(output)]
    if not missing or proto.ByteSize() > _PROTOBUF_LIMIT:
        return not missing
    with suppress(onnx.shape_inference.InferenceError, ValueError):
        inferred = onnx.shape_inference.infer_shapes(proto)
        found = {output.name: output for output in inferred.graph.output}
        for output in missing:
            output.CopyFrom(found[output.name])
    return not any(map(_lacks_shape, missing))


def _lacks_shape(output: onnx.ValueInfoProto) -> bool:
    if not output.HasField("type"):
        return True
    return output.type.HasField("tensor_type") and not output.type.tensor_type.HasField("shape")


def open_sizes(graph: ir.Graph) -> bool:
    """Make sizes of -1 open, in place; return whether there were any.

    Some exporters write them for an open dimension. ONNX Runtime accepts that, but not in every file that it writes
    itself: it computes with them.
    """
    values = [*graph.inputs, *(value for node in graph.all_nodes() for value in node.outputs)]
    found = False
    for value in values:
        dims = [] if value.shape is None else list(value.shape)
        if any(isinstance(dim, int) and dim < 0 for dim in dims):
            value.shape = ir.Shape([None if isinstance(dim, int) and dim < 0 else dim for dim in dims])
            found = True
    return found
