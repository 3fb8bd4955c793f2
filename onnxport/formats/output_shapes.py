"""Outputs that a file declares without a shape: skl2onnx does so for further outputs, and ONNX Runtime infers it."""

from __future__ import annotations

from contextlib import suppress

import onnx

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
