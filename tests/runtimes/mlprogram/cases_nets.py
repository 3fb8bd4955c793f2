"""Draws for activations, normalizations and what else is a net's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.runtimes.mlprogram.draws import CASES, FLOATS, Draw, Random, axis_of, case, flag, shape_of, values

for _name in ("relu", "relu6", "sigmoid", "softplus", "softsign"):
    CASES[_name] = lambda random, opset: {"x": values(random, shape_of(random), FLOATS)}


def _with(*parameters: str) -> Draw:
    """Scalars of x's type, in order of size."""

    def draw(random: Random, opset: int) -> dict[str, Any]:
        x = values(random, shape_of(random), FLOATS)
        scalars = np.sort(random.uniform(0.1, 3, len(parameters))).astype(x.dtype)
        return {"x": x} | dict(zip(parameters, scalars, strict=True))

    return draw


for _name in ("elu", "leaky_relu", "thresholded_relu"):
    CASES[_name] = _with("alpha")
for _name in ("clamped_relu", "linear_activation", "scaled_tanh", "sigmoid_hard"):
    CASES[_name] = _with("alpha", "beta")


@case("gelu")
def gelu(random: Random, opset: int) -> dict[str, Any]:
    modes = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    return {"x": values(random, shape_of(random), FLOATS), "mode": str(random.choice(modes))}


@case("softmax")
def softmax(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), FLOATS)
    return {"x": x} | ({"axis": axis_of(random, x.ndim)} if flag(random) else {})


@case("prelu")
def prelu(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 3, 5), FLOATS)
    alpha = random.uniform(0.1, 2, x.shape[1]).astype(x.dtype)
    return {"x": x, "alpha": alpha if x.ndim == 4 else np.full_like(alpha, 0.25)}


@case("softplus_parametric")
def softplus_parametric(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 4, 4), FLOATS, -3, 3)
    alpha, beta = (random.uniform(0.1, 2, x.shape[1]).astype(x.dtype) for _ in range(2))
    return {"x": x, "alpha": alpha, "beta": beta}


@case("l2_norm")
def l2_norm(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 3, 5, 4), FLOATS, -2, 2)
    return {"x": x, "epsilon": x.dtype.type(0.01)}


@case("layer_norm")
def layer_norm(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 2, 5, 4), FLOATS, -2, 2)
    axes = list(range(int(random.integers(x.ndim)), x.ndim))
    given = {"x": x, "axes": axes, "epsilon": x.dtype.type(0.01)}
    if flag(random):
        gamma, beta = (random.uniform(0.1, 2, x.shape[axes[0] :]).astype(x.dtype) for _ in range(2))
        given |= {"gamma": gamma, "beta": beta}
    return given


@case("quantize")
def quantize(random: Random, opset: int) -> dict[str, Any]:
    dtype = str(random.choice(["int8", "uint8"]))
    x = values(random, shape_of(random, 1, 4), FLOATS, -20, 20)
    given: dict[str, Any] = {"input": x, "output_dtype": dtype}
    zero_points = np.dtype(dtype).type(3)
    if flag(random):
        axis = axis_of(random, x.ndim)
        given["axis"] = axis
        given["scale"] = (2.0 ** random.integers(-3, 1, x.shape[axis])).astype(x.dtype)
        zero_points = random.integers(0, 9, x.shape[axis]).astype(dtype)
    else:
        given["scale"] = x.dtype.type(0.125)
    return given | ({"zero_point": zero_points} if flag(random) else {})


@case("scaled_dot_product_attention")
def attention(random: Random, opset: int) -> dict[str, Any]:
    batch = shape_of(random, 1, 2, 3)
    queries, keys, depth, width = (int(size) for size in random.integers(1, 5, 4))
    query = values(random, (*batch, queries, depth), FLOATS, -2, 2)
    given = {
        "query": query,
        "key": values(random, (*batch, keys, depth), (query.dtype.name,), -2, 2),
        "value": values(random, (*batch, keys, width), (query.dtype.name,), -2, 2),
    }
    if flag(random):
        mask = random.random((queries, keys)) < 0.7
        mask[:, 0] = True  # none is masked altogether
        given["attn_mask"] = (
            mask if flag(random) else random.uniform(-2, 2, (queries, keys)).astype(query.dtype)
        )
    return given
