"""Softmax and its logarithm, over logits that a mask may have pushed beyond what float16 holds."""

from __future__ import annotations

import numpy as np
import onnx_ir as onnx

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView

# Smaller than any logit that counts, and far enough from the end of float16 that a few more added do not overflow.
_MASKED = -6e4
# How a mask gets from its constant to the logits.
_CARRYING = frozenset("Add Cast Expand Mul Reshape Squeeze Sub Transpose Unsqueeze Where".split())
_FLOATS = (onnx.DataType.FLOAT, onnx.DataType.FLOAT16, onnx.DataType.BFLOAT16, onnx.DataType.DOUBLE)
_FAR = 5  # operators between the two, at most


@lower("Softmax")
def softmax(node: NodeView[Value], mil: MilBuilder) -> None:
    """Along one axis (ONNX Softmax-13)."""
    node.emit(mil.softmax(x=_logits(node, mil), axis=node.attribute("axis", -1) % node.x.rank))


@lower("LogSoftmax")
def log_softmax(node: NodeView[Value], mil: MilBuilder) -> None:
    """The logarithm of Softmax (ONNX LogSoftmax-13), from the largest element down so that no power overflows."""
    x, axis = _logits(node, mil), node.attribute("axis", -1) % node.x.rank
    below = mil.sub(x=x, y=mil.reduce_max(x=x, axes=[axis], keep_dims=True))
    total = mil.reduce_sum(x=mil.exp(x=below), axes=[axis], keep_dims=True)
    node.emit(mil.sub(x=below, y=mil.log(x=total, epsilon=0.0)))


def _logits(node: NodeView[Value], mil: MilBuilder) -> Value:
    """The operand, in float16 with what a mask of -3.4e38 made infinite made finite again.

    A row that is masked as a whole would be one of NaN, and is one of equal shares.
    """
    source = node.node.inputs[0]
    if mil.compute == "fp32" or source is None or not _is_masked(source, _FAR):
        return node.x
    return mil.maximum(x=node.x, y=_MASKED)  # type: ignore[no-any-return]


def _is_masked(value: onnx.Value, steps: int) -> bool:
    """Whether a finite number that float16 does not hold is added to it."""
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
