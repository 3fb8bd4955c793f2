"""Activation functions."""

from __future__ import annotations

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.numbers.formulas import Term
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView


@lower("Relu")
def relu(node: NodeView[Value], mil: MilBuilder) -> None:
    """max(x, 0) (ONNX Relu-14), of integers too."""
    node.emit(mil.relu(x=node.x) if node.x.is_float else mil.maximum(x=node.x, y=0))


@lower("LeakyRelu")
def leaky_relu(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x where x >= 0, alpha * x elsewhere (ONNX LeakyRelu-16)."""
    node.emit(mil.leaky_relu(x=node.x, alpha=float(node.attribute("alpha", 0.01))))


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


@lower("Elu")
def elu(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x where x >= 0, alpha * (exp(x) - 1) elsewhere (ONNX Elu-22)."""
    node.emit(mil.elu(x=node.x, alpha=float(node.attribute("alpha", 1.0))))


@lower("Celu")
def celu(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1) (ONNX Celu-12)."""
    alpha, x = float(node.attribute("alpha", 1.0)), Term(mil, node.x)
    below = (x.minimum(0.0) * (1 / alpha)).call("elu", alpha=1.0)
    node.emit((x.call("relu") + below * alpha).value)


@lower("Selu")
def selu(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = gamma * Elu(x, alpha) (ONNX Selu-22)."""
    alpha, gamma = (float(node.attribute(*pair)) for pair in (("alpha", 1.6732632), ("gamma", 1.0507010)))
    node.emit((Term(mil, node.x).call("elu", alpha=alpha) * gamma).value)


@lower("Gelu")
def gelu(node: NodeView[Value], mil: MilBuilder) -> None:
    """Gaussian error linear unit, exact or by its tanh approximation (ONNX Gelu-20)."""
    tanh = node.attribute("approximate", "none") == "tanh"
    node.emit(mil.gelu(x=node.x, mode="TANH_APPROXIMATION" if tanh else "EXACT"))


@lower("HardSigmoid")
def hard_sigmoid(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = max(0, min(1, alpha * x + beta)) (ONNX HardSigmoid-22)."""
    alpha, beta = float(node.attribute("alpha", 0.2)), float(node.attribute("beta", 0.5))
    node.emit(mil.sigmoid_hard(x=node.x, alpha=alpha, beta=beta))


@lower("HardSwish")
def hard_swish(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x * max(0, min(1, x / 6 + 1 / 2)) (ONNX HardSwish-22); in half precision a sixth of -3 is not -1/2."""
    x = Term(mil, node.x)
    is_exact = mil.compute == "fp32"
    factor = x.call("sigmoid_hard", alpha=1 / 6, beta=0.5) if is_exact else (x + 3.0).call("relu6") / 6.0
    node.emit((x * factor).value)


@lower("Swish")
def swish(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x * sigmoid(alpha * x) (ONNX Swish-24)."""
    alpha, x = float(node.attribute("alpha", 1.0)), Term(mil, node.x)
    node.emit((x.call("silu") if alpha == 1 else x * (x * alpha).call("sigmoid")).value)


@lower("Mish")
def mish(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x * tanh(log(1 + exp(x))) (ONNX Mish-22)."""
    x = Term(mil, node.x)
    node.emit((x * x.call("softplus").call("tanh")).value)


@lower("ThresholdedRelu")
def thresholded_relu(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x where x > alpha, 0 elsewhere (ONNX ThresholdedRelu-22); MIL's own lets alpha itself pass."""
    x = Term(mil, node.x)
    node.emit((x > float(node.attribute("alpha", 1.0))).where(x, 0.0).value)


@lower("Shrink")
def shrink(node: NodeView[Value], mil: MilBuilder) -> None:
    """y = x + bias below -lambd, x - bias above lambd, 0 between (ONNX Shrink-9)."""
    x, bias, lambd = Term(mil, node.x), node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    if not node.x.is_float:
        node.unsupported("of integers; cast to a float type before it")
    below = (x < -float(lambd)).where(x + float(bias), 0.0)
    node.emit((x > float(lambd)).where(x - float(bias), below).value)
