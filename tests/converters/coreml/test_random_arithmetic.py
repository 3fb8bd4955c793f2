"""Elementwise operators and reductions of every element type at random, against ONNX Runtime: right or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array
from tests.converters.tflite.test_random_nodes import Drawn, check

SEEDS = 12  # per family; hundreds were run when the families were written
FLOATS = (np.float32, np.float32, np.float16)
# Integers beyond 32 bits are not Core ML's; the widest are drawn so that what is computed of them stays within.
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint32, np.uint64)
WIDE = 1000


def floats(draw: Drawn, *shape: int, dtype: Any = np.float32) -> Array:
    scale = draw.choice(0.1, 1, 3, 10)
    numbers = draw.floats(*shape) * scale
    return np.asarray(np.where(draw.random.random(shape) < 0.2, np.rint(numbers), numbers), dtype)


def integers(draw: Drawn, *shape: int, dtype: Any) -> Array:
    """Of narrow types and int32 every number, so that sums and products wrap around."""
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if limits.bits == 64 or dtype == np.uint32:
        low, high = max(low, -WIDE), WIDE
    if draw.choice(True, False):
        low, high = max(low, -9), 9
    return draw.random.integers(low, high, shape, endpoint=True).astype(dtype)


def numbers(draw: Drawn, *shape: int, dtype: Any) -> Array:
    if np.dtype(dtype).kind == "f":
        return floats(draw, *shape, dtype=dtype)
    if np.dtype(dtype).kind == "b":
        return draw.random.integers(0, 2, shape).astype(bool)
    return integers(draw, *shape, dtype=dtype)


def read_on(draw: Drawn, result: str, dtype: Any) -> None:
    """What reads a result of narrow integers inside the program: an output is cut to its type outside of it."""
    if np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize < 4:
        draw.node("Cast", result, to=TensorProto.FLOAT)


def shapes(draw: Drawn, count: int = 2) -> list[list[int]]:
    """Of operands that broadcast with each other, of any rank up to 5."""
    whole = draw.sizes(draw.size(0, 5), 1, 3)
    found = []
    for _ in range(count):
        own = [draw.choice(size, size, 1) for size in whole]
        found.append(own[draw.choice(0, 0, draw.size(0, len(whole))) :])
    return found


def binary(*ops: str, dtypes: tuple[Any, ...] = (*FLOATS, *INTEGERS)) -> Callable[[Drawn], None]:
    def family(draw: Drawn) -> None:
        dtype = draw.choice(*dtypes)
        a, b = (numbers(draw, *shape, dtype=dtype) for shape in shapes(draw))
        result = draw.node(draw.choice(*ops), draw.input(a), draw.operand(b))
        read_on(draw, result, dtype if ops[0] in ("Add", "BitwiseAnd") else bool)

    return family


def several(draw: Drawn) -> None:
    op = draw.choice("Max", "Min", "Sum", "Mean")
    # Sums of half precision are rounded once by ONNX Runtime, here after every operand.
    dtype = draw.choice(*FLOATS, *INTEGERS) if op in ("Max", "Min") else np.float32
    first, *others = (numbers(draw, *shape, dtype=dtype) for shape in shapes(draw, draw.size(1, 4)))
    draw.node(op, draw.input(first), *map(draw.operand, others))


def division(draw: Drawn) -> None:
    dtype = draw.choice(*FLOATS, *INTEGERS, *INTEGERS)
    a, b = (numbers(draw, *shape, dtype=dtype) for shape in shapes(draw))
    is_float = np.dtype(dtype).kind == "f"
    b = np.where(b == 0, np.ones((), dtype), b)
    if np.dtype(dtype).kind == "i":
        a = np.maximum(a, np.iinfo(dtype).min + 1)  # the lowest by -1 wraps around, or traps
    op = draw.choice("Div", "Mod", "fmod")
    attributes = {} if op == "Div" else {"fmod": int(is_float or op == "fmod")}
    if is_float and op != "Div":
        b = np.abs(b) + np.asarray(0.5, dtype) if draw.choice(True, False) else np.where(b == 0, 1, b)
        b = b.astype(dtype)
    result = draw.node("Div" if op == "Div" else "Mod", draw.input(a), draw.operand(b), **attributes)
    read_on(draw, result, dtype)


def power(draw: Drawn) -> None:
    base = draw.choice(np.float32, np.float16, np.int32, np.int64)
    exponent = draw.choice(np.float32, np.int32, np.int64, base)
    a, b = shapes(draw)
    x = np.clip(numbers(draw, *a, dtype=base), -9, 9)
    if np.dtype(base).kind == "f":
        x = (np.abs(x) + np.asarray(0.1, base)).astype(base)
    y = draw.random.integers(0, 8, b).astype(exponent)
    if np.dtype(base).kind == "f" and np.dtype(exponent).kind == "f":
        y = np.clip(floats(draw, *b, dtype=exponent), -3, 3)
    draw.node("Pow", draw.input(x), draw.operand(y))


def shift(draw: Drawn) -> None:
    dtype = draw.choice(np.uint8, np.uint16, np.uint32, np.uint64)
    a, b = shapes(draw)
    width = np.dtype(dtype).itemsize * 8
    counts = draw.random.integers(0, (width if width < 32 else 20) + 1, b).astype(dtype)
    x = numbers(draw, *a, dtype=dtype)
    way = draw.choice("LEFT", "RIGHT")
    read_on(draw, draw.node("BitShift", draw.input(x), draw.operand(counts), direction=way), dtype)


def unary(draw: Drawn) -> None:
    op = draw.choice(
        *"Abs Neg Sign Relu Ceil Floor Round Sqrt Exp Log Reciprocal Erf Sin Cos Tan Tanh Sigmoid Atan Asinh".split(),
        *"Sinh Cosh Softplus Softsign HardSwish Mish IsNaN IsInf BitwiseNot Not Acosh Asin Acos Atanh".split(),
    )
    dtype: Any = draw.choice(*FLOATS)
    if op in ("Abs", "Neg", "Sign", "Relu"):
        dtype = draw.choice(np.float32, *(t for t in INTEGERS if op != "Neg" or np.dtype(t).kind == "i"))
    if op in ("BitwiseNot", "Not"):
        dtype = draw.choice(*INTEGERS) if op == "BitwiseNot" else bool
    x = numbers(draw, *draw.sizes(draw.size(0, 5), 1, 4), dtype=dtype)
    if op in ("Asin", "Acos", "Atanh"):
        x = np.asarray(np.sin(x), dtype)
    elif op == "Acosh":
        x = np.asarray(1 + np.abs(x), dtype)
    elif op in ("Sqrt", "Log"):
        x = np.asarray(np.abs(x), dtype)
    elif op == "Tan":
        x = np.asarray(np.sin(x), dtype)
    elif op in ("IsNaN", "IsInf"):
        x = np.where(draw.random.random(x.shape) < 0.3, draw.choice(np.nan, np.inf, -np.inf), x).astype(dtype)
    result = draw.node(op, draw.input(x))
    read_on(draw, result, dtype)


def activation(draw: Drawn) -> None:
    names: dict[str, tuple[str, ...]] = {
        "Celu": ("alpha",),
        "Elu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "LeakyRelu": ("alpha",),
        "Selu": ("alpha", "gamma"),
        "Shrink": ("bias", "lambd"),
        "ThresholdedRelu": ("alpha",),
        "Gelu": (),
    }
    op = draw.choice(*names)
    given = {
        name: draw.choice(0.5, 0.25, 1.0, 2.0, draw.random.random() + 0.1)
        for name in names[op]
        if draw.choice(1, 0)
    }
    if op == "Gelu":
        given = {"approximate": draw.choice("none", "tanh")}
    x = floats(draw, *draw.sizes(draw.size(0, 5), 1, 4))
    if op == "ThresholdedRelu" and x.ndim:
        x.flat[0] = given.get("alpha", 1.0)
    draw.node(op, draw.input(x), **given)


def prelu(draw: Drawn) -> None:
    shape = draw.sizes(draw.size(1, 5), 1, 3)
    slope = [draw.choice(size, 1) for size in shape][draw.size(0, len(shape)) :]
    if draw.choice(True, False) and len(shape) > 2:
        slope = [shape[1], *[1] * (len(shape) - 2)]
    dtype = draw.choice(*FLOATS, np.int32)
    x, y = (numbers(draw, *each, dtype=dtype) for each in (shape, slope))
    draw.node("PRelu", draw.input(x), draw.operand(y))


def clip(draw: Drawn) -> None:
    dtype = draw.choice(*FLOATS, *INTEGERS)
    x = numbers(draw, *draw.sizes(draw.size(0, 5), 1, 4), dtype=dtype)
    low, high = (np.asarray(draw.size(0, 9) - draw.choice(0, 0, 4) * (np.dtype(dtype).kind != "u"), dtype)
                 for _ in range(2))  # fmt: skip
    if draw.choice(True, True, False):
        low, high = min(low, high), max(low, high)
    bounds = [draw.operand(low) if draw.choice(1, 1, 0) else ""]
    bounds += [draw.operand(high)] if draw.choice(1, 1, 0) else []
    draw.node("Clip", draw.input(x), *bounds)


def where(draw: Drawn) -> None:
    dtype = draw.choice(*FLOATS, np.int64, np.int32, np.uint8, bool)
    condition, a, b = shapes(draw, 3)
    x = draw.input(numbers(draw, *condition, dtype=bool))
    draw.node("Where", x, *(draw.operand(numbers(draw, *shape, dtype=dtype)) for shape in (a, b)))


def cast(draw: Drawn) -> None:
    source, target = (draw.choice(*FLOATS, *INTEGERS, bool, np.float64) for _ in range(2))
    x = numbers(draw, *draw.sizes(draw.size(0, 5), 1, 4), dtype=source)
    limits = np.iinfo(target) if np.dtype(target).kind in "iu" else None
    if np.dtype(source).kind == "f" and limits:
        x = np.clip(x, limits.min, min(limits.max, 1000)).astype(source)
    elif np.dtype(target) == np.float16:
        x = np.clip(x, 0, 1000).astype(source)
    elif np.dtype(source).kind == "i" and np.dtype(target).kind == "u" and limits and limits.bits > 16:
        x = np.abs(np.maximum(x, -9))  # beyond 31 bits
    y = draw.node("Cast", draw.input(x), to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
    if np.dtype(target).kind != "b" and draw.choice(True, False):
        draw.node("Max", y, draw.constant(np.array(1, target)))


def _axes(draw: Drawn, rank: int) -> Array | None:
    axes = draw.random.permutation(rank)[: draw.size(0, rank)] - draw.choice(0, rank)
    return axes.astype(np.int64) if len(axes) else None


def reduction(draw: Drawn) -> None:
    op = draw.choice(
        *"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum".split(),
        "ReduceSumSquare",
    )
    shape = draw.sizes(draw.size(0, 5), 1, 4)
    dtype = draw.choice(np.float32, np.float32, np.int32, np.int64)
    if op in ("ReduceMax", "ReduceMin"):
        dtype = draw.choice(dtype, np.int8, np.uint8, bool)
    x = numbers(draw, *shape, dtype=dtype)
    if np.dtype(dtype).kind == "i":  # within 32 bits
        x = np.clip(x, -99, 99) if op != "ReduceProd" else np.sign(x)
    if op == "ReduceLogSum":
        x = np.abs(x) + np.ones((), dtype)
    if op in ("ReduceLogSumExp", "ReduceLogSum", "ReduceL2", "ReduceMean"):
        x = x.astype(np.float32)
    axes = _axes(draw, len(shape))
    operands = [draw.operand(axes)] if axes is not None else []
    attributes = {"keepdims": draw.size(0, 1)}
    if draw.choice(1, 0, 0):
        attributes["noop_with_empty_axes"] = 1
    draw.node(op, draw.input(x), *operands, **attributes)


def extreme(draw: Drawn) -> None:
    shape = draw.sizes(draw.size(1, 5), 1, 4)
    dtype = draw.choice(*FLOATS, np.int8, np.uint8, np.int32, np.int64)
    x = np.rint(numbers(draw, *shape, dtype=dtype) % np.asarray(4, dtype)).astype(dtype)  # with ties
    axis = draw.size(-len(shape), len(shape) - 1)
    given = {"keepdims": draw.size(0, 1), "select_last_index": draw.size(0, 1)}
    draw.node(draw.choice("ArgMax", "ArgMin"), draw.input(x), axis=axis, **given)


FAMILIES: dict[str, Callable[[Drawn], None]] = {
    "activation": activation,
    "arithmetic": binary("Add", "Sub", "Mul"),
    "bits": binary("BitwiseAnd", "BitwiseOr", "BitwiseXor", dtypes=INTEGERS),
    "cast": cast,
    "clip": clip,
    "comparison": binary("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    "division": division,
    "extreme": extreme,
    "logic": binary("And", "Or", "Xor", "Equal", dtypes=(bool,)),
    "power": power,
    "prelu": prelu,
    "reduction": reduction,
    "several": several,
    "shift": shift,
    "unary": unary,
    "where": where,
}
# Families whose first operand may have any size along every axis.
OPEN: dict[str, int | None] = dict.fromkeys(("activation", "clip", "extreme", "reduction", "unary", "cast"))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_accepted_computes_what_onnx_runtime_does(coreml: CoremlConformance, family: str) -> None:
    faults = [check(coreml, family, seed, families=FAMILIES) for seed in range(SEEDS)]
    assert not list(filter(None, faults))


@pytest.mark.parametrize("family", OPEN)
def test_one_package_is_right_at_several_sizes(coreml: CoremlConformance, family: str) -> None:
    faults = [
        check(coreml, family, seed, is_open=True, families=FAMILIES, kept_axes=OPEN) for seed in range(SEEDS)
    ]
    assert not list(filter(None, faults))
