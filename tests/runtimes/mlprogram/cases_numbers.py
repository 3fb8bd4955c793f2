"""Draws for operators that compute number by number, and for reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.runtimes.mlprogram.draws import (
    ANY,
    CASES,
    FLOATS,
    NARROW,
    NUMBERS,
    Draw,
    Random,
    axes_of,
    axis_of,
    case,
    distinct,
    flag,
    moved,
    shape_of,
    values,
)

UNARY = {
    **dict.fromkeys(("atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "round"), (-8.0, 8.0)),
    **dict.fromkeys(("sin", "sinh", "tanh"), (-8.0, 8.0)),
    "tan": (-1.4, 1.4),
    **dict.fromkeys(("acos", "asin"), (-1.0, 1.0)),
    "atanh": (-0.9, 0.9),
    **dict.fromkeys(("sqrt",), (0.0, 20.0)),
}


def _unary(low: float, high: float, dtypes: tuple[str, ...]) -> Draw:
    return lambda random, opset: {"x": values(random, shape_of(random), dtypes, low, high)}


for _name, (_low, _high) in UNARY.items():
    CASES[_name] = _unary(_low, _high, FLOATS)
for _name in ("abs", "sign", "square"):
    CASES[_name] = _unary(-8, 8, NUMBERS)


@case("exp2")
def exp2(random: Random, opset: int) -> dict[str, Any]:
    return {"x": values(random, shape_of(random), NUMBERS, 0, 8)}


@case("logical_not")
def logical_not(random: Random, opset: int) -> dict[str, Any]:
    return {"x": values(random, shape_of(random), ("bool",))}


@case("inverse", "log", "rsqrt")
def with_epsilon(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), FLOATS, 0.1, 20)
    return {"x": x} | ({"epsilon": x.dtype.type(random.uniform(0, 0.5))} if flag(random) else {})


@case("clip")
def clip(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), FLOATS)
    alpha, beta = np.sort(random.uniform(-8, 8, 2)).astype(x.dtype)
    return {"x": x, "alpha": alpha, "beta": beta}


@case("threshold")
def threshold(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), NUMBERS)
    return {"x": x, "alpha": x.dtype.type(random.integers(-5, 5))}


@case("cast")
def cast(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), moved(opset), 0, 90)
    wanted = ["int32", "fp16", "fp32", "bool", *(NARROW if opset >= 17 else ())]
    return {"x": x, "dtype": str(random.choice(wanted))}


@case("identity", "shape", "non_zero")
def any_tensor(random: Random, opset: int) -> dict[str, Any]:
    return {"x": values(random, shape_of(random), ANY, -1.5, 1.5)}


def pair(random: Random, dtypes: tuple[str, ...], low: float = -8, high: float = 8) -> dict[str, Any]:
    """Shapes that broadcast: axes of 1, and missing ones in front."""
    whole = shape_of(random)
    left, right = (tuple(1 if random.random() < 0.3 else size for size in whole) for _ in range(2))
    left = left[int(random.integers(len(left))) :]
    x = values(random, left, dtypes, low, high)
    y = values(random, right, (x.dtype.name,), low, high)
    return {"x": x, "y": y} if flag(random) else {"x": y, "y": x}


for _name in ("add", "sub", "mul", "maximum", "minimum"):
    CASES[_name] = lambda random, opset: pair(random, NUMBERS)
for _name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
    CASES[_name] = lambda random, opset: pair(random, NUMBERS, -2, 2)
for _name in ("logical_and", "logical_or", "logical_xor"):
    CASES[_name] = lambda random, opset: pair(random, ("bool",))


@case("real_div")  # of integers it is exempt
def real_div(random: Random, opset: int) -> dict[str, Any]:
    return pair(random, FLOATS, 0.5, 9)


@case("floor_div", "mod")
def floor_div(random: Random, opset: int) -> dict[str, Any]:
    given = pair(random, NUMBERS)
    # Away from zero; and, of floats, away from where a rounding decides between two quotients.
    divisor = np.where(np.abs(given["y"]) < 1, 3, given["y"]).astype(given["y"].dtype)
    return {"x": given["x"], "y": np.rint(divisor).astype(divisor.dtype)}


@case("pow")
def power(random: Random, opset: int) -> dict[str, Any]:
    return pair(random, NUMBERS, 0.5, 4)


@case("select")
def select(random: Random, opset: int) -> dict[str, Any]:
    given = pair(random, ANY)
    shape = np.broadcast_shapes(given["x"].shape, given["y"].shape)
    return {"cond": values(random, shape, ("bool",)), "a": given["x"], "b": given["y"]}


def reduction(dtypes: tuple[str, ...], low: float, high: float, largest: int = 4) -> Draw:
    def draw(random: Random, opset: int) -> dict[str, Any]:
        x = values(random, shape_of(random, largest=largest), dtypes, low, high)
        return (
            {"x": x}
            | ({"axes": axes_of(random, x.ndim)} if random.random() < 0.8 else {})
            | ({"keep_dims": flag(random)} if flag(random) else {})
        )

    return draw


for _name in ("reduce_max", "reduce_min", "reduce_sum", "reduce_l1_norm", "reduce_sum_square"):
    CASES[_name] = reduction(NUMBERS, -4, 4)
for _name in ("reduce_mean", "reduce_l2_norm", "reduce_log_sum_exp"):
    CASES[_name] = reduction(NUMBERS, -4, 4)
CASES["reduce_log_sum"] = reduction(NUMBERS, 1, 4)
CASES["reduce_prod"] = reduction(NUMBERS, 1, 2, largest=2)


@case("reduce_argmax", "reduce_argmin")
def position(random: Random, opset: int) -> dict[str, Any]:
    x = distinct(random, shape_of(random, largest=4), NUMBERS)
    given = {"x": x, "keep_dims": flag(random)}
    if random.random() < 0.8:
        given["axis"] = axis_of(random, x.ndim)
    if opset >= 17 and flag(random):
        given["output_dtype"] = str(random.choice(["int32", "uint16"]))
    return given
