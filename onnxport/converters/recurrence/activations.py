"""The activations of recurrent cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from onnxport.converters.formulas import Formula

F = TypeVar("F", bound=Formula)

# Name in lower case -> defaults of the parameters that it takes, alpha first.
# ONNX leaves some defaults open; these are ONNX Runtime's, measured.
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (0.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (0.0, 0.0),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (0.0,),
}
# Functions of x and those parameters; the others are operators of each target.
_FORMULAS: dict[str, Callable[..., Any]] = {
    "affine": lambda x, alpha, beta: x * alpha + beta,
    "hardsigmoid": lambda x, alpha, beta: (x * alpha + beta).maximum(0.0).minimum(1.0),
    "leakyrelu": lambda x, alpha: x.maximum(0.0) + x.minimum(0.0) * alpha,
    "relu": lambda x: x.call("relu"),
    "scaledtanh": lambda x, alpha, beta: (x * beta).call("tanh") * alpha,
    "softsign": lambda x: x / (x.call("abs") + 1.0),
    "tanh": lambda x: x.call("tanh"),
    "thresholdedrelu": lambda x, alpha: x.where_at_least(
        float(np.nextafter(np.float32(alpha), np.float32(np.inf))), x, 0.0
    ),
}


def activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], own: Mapping[str, Callable[..., F]]
) -> list[Callable[[F], F]]:
    """Return the functions of these names, which take their parameters from the lists in turn.

    Args:
        own: the target's elu, sigmoid and softplus.

    Raises:
        KeyError: an unknown name.
    """
    given = iter(alphas), iter(betas)
    functions = {**_FORMULAS, **own}
    found: list[Callable[[F], F]] = []
    for name in names:
        defaults, function = _DEFAULTS[name.lower()], functions[name.lower()]
        parameters = [next(numbers, default) for numbers, default in zip(given, defaults, strict=False)]
        found.append(lambda x, function=function, parameters=parameters: function(x, *parameters))  # type: ignore[misc]
    return found
