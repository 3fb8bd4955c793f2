"""Activation functions; softmax and its logarithm, over logits that a mask may have moved beyond float16's range."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as onnx

from onnxport.converters.coreml.builder import MilBuilder, MilNode
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.ops.elementwise import formula
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value

# MIL's own, with attributes of the same names.
formula("Elu", alpha=1.0)(partial(Term.call, op="elu"))
formula("HardSigmoid", alpha=0.2, beta=0.5)(partial(Term.call, op="sigmoid_hard"))
formula("LeakyRelu", alpha=0.01)(partial(Term.call, op="leaky_relu"))


@formula("Relu")
def relu(x: Term) -> Term:
    """max(x, 0) (ONNX Relu-14), of integers too."""
    return x.call("relu") if x.value.is_float else x.maximum(0)


@lower("PRelu")
def prelu(node: MilNode, mil: MilBuilder) -> None:
    """y = x where x >= 0, slope * x elsewhere, slope broadcast to x one way (ONNX PRelu-16)."""
    x, slope = node.input(0), node.input(1)
    if x.is_float and x.rank == 4 and slope.constant is not None:
        shape = (1,) * (4 - slope.rank) + slope.constant.shape
        if shape[0] == shape[2] == shape[3] == 1 and shape[1] == x.shape[1]:
            node.emit(mil.prelu(x=x, alpha=mil.constant(slope.constant.reshape(-1))))
            return
    term = Term(mil, x)
    node.emit((term < 0).where(term * slope, term).value)


@formula("Celu", alpha=1.0)
def celu(x: Term, alpha: float) -> Term:
    """y = max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1) (ONNX Celu-12)."""
    below = (x.minimum(0.0) * (1 / alpha)).call("elu", alpha=1.0)
    return x.call("relu") + below * alpha


@formula("Selu", alpha=1.6732632, gamma=1.0507010)
def selu(x: Term, alpha: float, gamma: float) -> Term:
    """y = gamma * Elu(x, alpha) (ONNX Selu-22)."""
    return x.call("elu", alpha=alpha) * gamma


@lower("Gelu")
def gelu(node: MilNode, mil: MilBuilder) -> None:
    """Gaussian error linear unit, exact or by its tanh approximation (ONNX Gelu-20)."""
    tanh = node.attribute("approximate", "none") == "tanh"
    node.emit(mil.gelu(x=node.x, mode="TANH_APPROXIMATION" if tanh else "EXACT"))


@formula("HardSwish")
def hard_swish(x: Term) -> Term:
    """y = x * max(0, min(1, x / 6 + 1 / 2)) (ONNX HardSwish-22); in half precision a sixth of -3 is not -1/2."""
    is_exact = x.mil.compute == "fp32"
    return x * (x.call("sigmoid_hard", alpha=1 / 6, beta=0.5) if is_exact else (x + 3.0).call("relu6") / 6.0)


@formula("Swish", alpha=1.0)
def swish(x: Term, alpha: float) -> Term:
    """y = x * sigmoid(alpha * x) (ONNX Swish-24)."""
    return x.call("silu") if alpha == 1 else x * (x * alpha).call("sigmoid")


@formula("Mish")
def mish(x: Term) -> Term:
    """y = x * tanh(log(1 + exp(x))) (ONNX Mish-22)."""
    return x * x.call("softplus").call("tanh")


@formula("ThresholdedRelu", alpha=1.0)
def thresholded_relu(x: Term, alpha: float) -> Term:
    """y = x where x > alpha, 0 elsewhere (ONNX ThresholdedRelu-22); MIL's own keeps alpha itself."""
    return (x > alpha).where(x, 0.0)


@lower("Shrink")
def shrink(node: MilNode, mil: MilBuilder) -> None:
    """y = x + bias below -lambd, x - bias above lambd, 0 between (ONNX Shrink-9)."""
    x, bias, lambd = Term(mil, node.x), node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    if not node.x.is_float:
        node.unsupported("of integers; cast to a float type before it")
    below = (x < -float(lambd)).where(x + float(bias), 0.0)
    node.emit((x > float(lambd)).where(x - float(bias), below).value)


# Smaller than any real logit, and far enough from float16's limit that a few more additions do not overflow.
_MASKED = -6e4
# Operators between a mask's constant and the logits.
_CARRYING = frozenset("Add Cast Expand Mul Reshape Squeeze Sub Transpose Unsqueeze Where".split())
_FLOATS = (onnx.DataType.FLOAT, onnx.DataType.FLOAT16, onnx.DataType.BFLOAT16, onnx.DataType.DOUBLE)
_FAR = 5  # the most of them


@lower("Softmax")
def softmax(node: MilNode, mil: MilBuilder) -> None:
    """Softmax along one axis (ONNX Softmax-13)."""
    node.emit(mil.softmax(x=_logits(node, mil), axis=node.attribute("axis", -1) % node.x.rank))


@lower("LogSoftmax")
def log_softmax(node: MilNode, mil: MilBuilder) -> None:
    """The logarithm of Softmax (ONNX LogSoftmax-13), shifted by the largest element so that exp cannot overflow."""
    x, axis = _logits(node, mil), node.attribute("axis", -1) % node.x.rank
    below = mil.sub(x=x, y=mil.reduce_max(x=x, axes=[axis], keep_dims=True))
    total = mil.reduce_sum(x=mil.exp(x=below), axes=[axis], keep_dims=True)
    node.emit(mil.sub(x=below, y=mil.log(x=total, epsilon=0.0)))


def _logits(node: MilNode, mil: MilBuilder) -> Value:
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
