"""Softmax and its logarithm, over logits that a mask may have moved beyond float16's range."""

from __future__ import annotations

import numpy as np
import onnx_ir as onnx

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

# Smaller than any real logit, and far enough from float16's limit that a few more additions do not overflow.
_MASKED = -6e4
# Operators between a mask's constant and the logits.
_CARRYING = frozenset("Add Cast Expand Mul Reshape Squeeze Sub Transpose Unsqueeze Where".split())
_FLOATS = (onnx.DataType.FLOAT, onnx.DataType.FLOAT16, onnx.DataType.BFLOAT16, onnx.DataType.DOUBLE)
_FAR = 5  # the most of them


@lower("Softmax")
def softmax(node: NodeView[Value], mil: MilBuilder) -> None:
    """Softmax along one axis (ONNX Softmax-13)."""
    node.emit(mil.softmax(x=_logits(node, mil), axis=node.attribute("axis", -1) % node.x.rank))


@lower("LogSoftmax")
def log_softmax(node: NodeView[Value], mil: MilBuilder) -> None:
    """The logarithm of Softmax (ONNX LogSoftmax-13), shifted by the largest element so that exp cannot overflow."""
    x, axis = _logits(node, mil), node.attribute("axis", -1) % node.x.rank
    below = mil.sub(x=x, y=mil.reduce_max(x=x, axes=[axis], keep_dims=True))
    total = mil.reduce_sum(x=mil.exp(x=below), axes=[axis], keep_dims=True)
    node.emit(mil.sub(x=below, y=mil.log(x=total, epsilon=0.0)))


def _logits(node: NodeView[Value], mil: MilBuilder) -> Value:
    """Return the operand; in float16, with logits finite that a mask of -3.4e38 made infinite.

    A fully masked row would otherwise be NaN instead of equal shares.
    """
    source = node.node.inputs[0]
    if mil.compute == "fp32" or source is None or not _is_masked(source, _FAR):
        return node.x
    return mil.maximum(x=node.x, y=_MASKED)


def _is_masked(value: onnx.Value, steps: int) -> bool:
    """Return whether a finite number beyond float16's range is added to a value."""
    known = value.const_value
    if known is not None:
        if known.dtype not in _FLOATS:
            return False
        numbers = known.numpy().astype(np.float32)
        return bool((np.isfinite(numbers) & (np.abs(numbers) > -_MASKED)).any())
    producer = value.producer()
    if producer is None or not steps or producer.op_type not in _CARRYING:
        return False
    return any(operand is not None and _is_masked(operand, steps - 1) for operand in producer.inputs)
