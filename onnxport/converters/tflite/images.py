"""Values that reach an operator on images, which TFLite keeps channels last."""

from __future__ import annotations

import onnx_ir as onnx

from onnxport.converters.lowering import known_shape

# Ops that work in any axis order, between a value and the first op that needs channels last.
_LAYOUT_AGNOSTIC = frozenset(
    (
        "Add BatchNormalization Cast Clip DequantizeLinear Div Dropout Identity LeakyRelu Mul Neg Pad PRelu "
        "QuantizeLinear Relu Sigmoid Sub Tanh"
    ).split()
)
_WANTS_CHANNELS_LAST = frozenset(
    "Conv ConvTranspose MaxPool AveragePool Resize LRN DepthToSpace SpaceToDepth".split()
)


def feeds_images(value: onnx.Value) -> bool:
    """Return whether a value of four axes reaches an op on channels-last images before any op that fixes its axes."""
    seen: set[onnx.Value] = set()
    waiting = [value] if len(known_shape(value)) == 4 else []
    while waiting:
        current = waiting.pop()
        for node, index in current.uses():
            if node.op_type in _WANTS_CHANNELS_LAST and index == 0:
                return True
            if node.op_type in _LAYOUT_AGNOSTIC:
                waiting.extend(out for out in node.outputs if out not in seen)
                seen.update(node.outputs)
    return False
