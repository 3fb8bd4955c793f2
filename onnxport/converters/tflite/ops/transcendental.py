"""Trigonometry, hyperbolic functions and the error function, from the few such kernels that TFLite has.

Each keeps a small relative error for small values: ELU, exp(x) - 1 for negative x, and Elements.log1p_of_fraction
avoid cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onnxport.converters.tflite.elements import Elements, formula
from onnxport.converters.tflite.registry import REGISTRY

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


def _tan(x: Elements) -> Elements:
    return x.call("sin") / x.call("cos")


def _asin(x: Elements) -> Elements:
    return x.call("atan2", _cosine_of_asin(x))


def _acos(x: Elements) -> Elements:
    return _cosine_of_asin(x).call("atan2", x)


def _cosine_of_asin(x: Elements) -> Elements:
    return ((-x + 1.0) * (x + 1.0)).call("sqrt")


def _atan(x: Elements) -> Elements:
    return x.call("atan2", x.maximum(1.0).minimum(1.0))  # atan2(x, 1); TFLite's does not broadcast


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


# ONNX op -> its formula (Erf of opset 13, the others of opset 22).
_FORMULAS: dict[str, Callable[[Elements], Elements]] = {
    "Acos": _acos,
    "Acosh": _acosh,
    "Asin": _asin,
    "Asinh": _asinh,
    "Atan": _atan,
    "Atanh": _atanh,
    "Cosh": _cosh,
    "Erf": _erf,
    "Sinh": _sinh,
    "Tan": _tan,
}


REGISTRY.table({op: partial(formula, body=body) for op, body in _FORMULAS.items()})
