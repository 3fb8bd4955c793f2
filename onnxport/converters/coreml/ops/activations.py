"""Activation functions."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.ops.elementwise import formula
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView


@formula("Relu")
def relu(x: Term) -> Term:
    """max(x, 0) (ONNX Relu-14), of integers too."""
    return x.call("relu") if x.value.is_float else x.maximum(0)


@formula("LeakyRelu", alpha=0.01)
def leaky_relu(x: Term, alpha: float) -> Term:
    """y = x where x >= 0, alpha * x elsewhere (ONNX LeakyRelu-16)."""
    return x.call("leaky_relu", alpha=alpha)


@lower("PRelu")
def prelu(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x where x >= 0, slope * x elsewhere, slope broadcast to x one way (ONNX PRelu-16)."""
    x, slope = node.input(0), node.input(1)
    if x.is_float and x.rank == 4 and slope.constant is not None:
        shape = (1,) * (4 - slope.rank) + slope.constant.shape
        if shape[0] == shape[2] == shape[3] == 1 and shape[1] == x.shape[1]:
            node.emit(mil.prelu(x=x, alpha=mil.constant(slope.constant.reshape(-1))))
            return
    term = Term(mil, x)
    node.emit((term < 0).where(term * slope, term).value)


@formula("Elu", alpha=1.0)
def elu(x: Term, alpha: float) -> Term:
    """y = x where x >= 0, alpha * (exp(x) - 1) elsewhere (ONNX Elu-22)."""
    return x.call("elu", alpha=alpha)


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
def gelu(node: NodeView[Value], mil: MilBuilder) -> None:
    """Gaussian error linear unit, exact or by its tanh approximation (ONNX Gelu-20)."""
    tanh = node.attribute("approximate", "none") == "tanh"
    node.emit(mil.gelu(x=node.x, mode="TANH_APPROXIMATION" if tanh else "EXACT"))


@formula("HardSigmoid", alpha=0.2, beta=0.5)
def hard_sigmoid(x: Term, alpha: float, beta: float) -> Term:
    """y = max(0, min(1, alpha * x + beta)) (ONNX HardSigmoid-22)."""
    return x.call("sigmoid_hard", alpha=alpha, beta=beta)


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
def shrink(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x + bias below -lambd, x - bias above lambd, 0 between (ONNX Shrink-9)."""
    x, bias, lambd = Term(mil, node.x), node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    if not node.x.is_float:
        node.unsupported("of integers; cast to a float type before it")
    below = (x < -float(lambd)).where(x + float(bias), 0.0)
    node.emit((x > float(lambd)).where(x - float(bias), below).value)
