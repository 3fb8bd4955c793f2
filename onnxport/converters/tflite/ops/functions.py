"""Functions of one operand: activations, and formulas for what TFLite has no kernels of.

A formula keeps a small relative error for small values: ELU, exp(x) - 1 for negative x, and
Elements.log1p_of_fraction avoid cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.formulas import Elements, elu, lower_formula, softplus
from onnxport.converters.tflite.registry import REGISTRY, lower


@lower("Relu")
def relu(node: TflNode, tfl: TflBuilder) -> None:
    """max(x, 0) (ONNX Relu-14), of integers too."""
    is_float = node.x.dtype.kind == "f"
    node.emit(tfl.apply("relu", node.x) if is_float else tfl.broadcast("maximum", node.x, 0))


@lower("LeakyRelu")
def leaky_relu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, alpha * x elsewhere (ONNX LeakyRelu-16)."""
    node.emit(tfl.apply("leaky_relu", node.x, alpha=float(node.attribute("alpha", 0.01))))


@lower("PRelu")
def prelu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, slope * x elsewhere, slope broadcast to x one way (ONNX PRelu-16)."""
    x, slope = node.input(0), node.input(1)
    order = tfl.common_order(x)
    # TFLite's PRELU takes float32, one constant slope for the whole batch and at most four axes.
    takes_x = x.dtype == np.float32 and x.rank in (2, 3, 4) and order[0] == 0
    if slope.constant is None or not takes_x or (slope.rank == x.rank and slope.shape[0] != 1):
        negative = tfl.broadcast("less", x, 0)
        node.emit(tfl.broadcast("select_v2", negative, tfl.broadcast("mul", x, slope), x))
        return
    full = slope.constant.reshape((1,) * (x.rank - slope.rank) + slope.constant.shape)
    alpha = tfl.constant(np.transpose(full, order)[0])
    node.emit(tfl.apply("prelu", x, alpha, order=order))


@lower("Elu")
def lower_elu(node: TflNode, tfl: TflBuilder) -> None:
    """ONNX Elu-22; TFLite's ELU has alpha 1."""
    if node.attribute("alpha", 1.0) == 1.0:
        node.emit(tfl.apply("elu", node.x))
    else:
        lower_formula(node, tfl, elu, {"alpha": 1.0})


@lower("Gelu")
def gelu(node: TflNode, tfl: TflBuilder) -> None:
    """Gaussian error linear unit, exact or by its tanh approximation (ONNX Gelu-20)."""
    node.emit(tfl.apply("gelu", node.x, approximate=node.attribute("approximate", "none") == "tanh"))


@lower("Reciprocal")
def reciprocal(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(tfl.broadcast("div", 1, node.x))


# ---- formulas

# erf(x) = x * P(x^2) / Q(x^2) for |x| up to the bound, beyond which it is 1 in float32. These are the
# coefficients of Eigen and XLA (xla/client/lib/math.cc, ErfImpl32), error below 3e-7.
_ERF_BOUND = 3.832506856900711
_ERF_P = (
    1.128379143519084,
    0.18520832239976145,
    0.050955695062380861,
    0.0034082910107109506,
    0.00022905065861350646,
)
_ERF_Q = (
    1.0,
    0.49746925110067538,
    0.11098505178285362,
    0.014070470171167667,
    0.0010179625278914885,
    0.000023547966471313185,
    -1.1791602954361697e-7,
)


def _erf(x: Elements) -> Elements:
    bounded = x.maximum(-_ERF_BOUND).minimum(_ERF_BOUND)
    square = bounded * bounded
    quotient = bounded * square.polynomial(_ERF_P) / square.polynomial(_ERF_Q)
    return quotient.maximum(-1.0).minimum(1.0)


def _cosine_of_asin(x: Elements) -> Elements:
    return ((-x + 1.0) * (x + 1.0)).call("sqrt")


def _sinh(x: Elements) -> Elements:
    size = x.call("abs")
    # u = exp(-|x|) - 1; sinh |x| = -(u + u / (1 + u)) / 2
    u = (-size.minimum(1.0)).call("elu")
    near = (u + u / (u + 1.0)) * -0.5
    far = _half_exp(size) - (-size).call("exp") * 0.5
    return size.where_at_least(1.0, far, near) * x.call("sign")


def _cosh(x: Elements) -> Elements:
    size = x.call("abs")
    return _half_exp(size) + (-size).call("exp") * 0.5


def _half_exp(x: Elements) -> Elements:
    """exp(x) / 2, finite as long as that is: exp(x) overflows before."""
    root = (x * 0.5).call("exp")
    return root * 0.5 * root


def _log1p(u: Elements) -> Elements:
    """log(1 + u) for u >= 0."""
    small = u.minimum(1.0).log1p_of_fraction()
    # Above 1, add log((1 + u) / 2); below it, that is 0.
    return small + ((u.maximum(1.0) + 1.0) * 0.5).call("log")


def _asinh(x: Elements) -> Elements:
    # |x| + sqrt(x^2 + 1) = 1 + |x| + |x| * |x| / (1 + sqrt(x^2 + 1)); the last quotient is 1 for large x
    size = x.call("abs")
    bounded = size.minimum(1e9)  # whose square does not overflow
    quotient = bounded / ((bounded * bounded + 1.0).call("sqrt") + 1.0)
    return _log1p(size + size * quotient) * x.call("sign")


def _acosh(x: Elements) -> Elements:
    above = x - 1.0
    return _log1p(above + above.call("sqrt") * (x + 1.0).call("sqrt"))


def _atanh(x: Elements) -> Elements:
    size = x.call("abs")
    root = (-size + 1.0).call("sqrt")  # NaN beyond 1, as the result has to be
    return _log1p(size * 2.0 / (root * root)) * x.call("sign") * 0.5


def _mish(x: Elements) -> Elements:
    """x * tanh(log(1 + exp(x))): the tanh of a logarithm is a quotient, n / (n + 2)."""
    e = x.minimum(20.0).call("exp")  # from 20 on the quotient is 1 in float32
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


# ONNX op (Erf of opset 13, the others of 22) -> its formula, and the defaults of its attributes.
_FORMULAS: dict[str, tuple[Callable[..., Elements], dict[str, float]]] = {
    "Acos": (lambda x: _cosine_of_asin(x).call("atan2", x), {}),
    "Acosh": (_acosh, {}),
    "Asin": (lambda x: x.call("atan2", _cosine_of_asin(x)), {}),
    "Asinh": (_asinh, {}),
    "Atan": (lambda x: x.call("atan2", x.maximum(1.0).minimum(1.0)), {}),  # TFLite's does not broadcast a 1
    "Atanh": (_atanh, {}),
    "Cosh": (_cosh, {}),
    "Erf": (_erf, {}),
    "HardSigmoid": (
        lambda x, alpha, beta: (x * alpha + beta).call("relu_0_to_1"),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "Mish": (_mish, {}),
    "Selu": (lambda x, alpha, gamma: elu(x, alpha) * gamma, {"alpha": 1.6732632, "gamma": 1.0507010}),
    "Sinh": (_sinh, {}),
    "Softplus": (softplus, {}),
    "Tan": (lambda x: x.call("sin") / x.call("cos"), {}),
}
REGISTRY.table(
    {op: partial(lower_formula, body=body, defaults=defaults) for op, (body, defaults) in _FORMULAS.items()}
)
