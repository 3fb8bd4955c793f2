"""Draws for operators that find, order and make numbers, and for products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.runtimes.mlprogram.draws import (
    ANY,
    FLOATS,
    NARROW,
    NUMBERS,
    Random,
    axis_of,
    case,
    distinct,
    flag,
    shape_of,
    values,
)


@case("gather")
def gather(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 1, 3), (*NUMBERS, *NARROW) if opset >= 17 else NUMBERS)
    axis = axis_of(random, x.ndim)
    given: dict[str, Any] = {"x": x, "axis": axis}
    shape = shape_of(random, 0, 2)
    if opset >= 16 and x.ndim > 1 and flag(random):
        given["batch_dims"] = 1
        given["axis"] = axis = int(random.integers(1, x.ndim))
        shape = (x.shape[0], *shape)
    if opset >= 17 and flag(random):
        given["validate_indices"] = True
    lowest = 0 if opset >= 17 else -x.shape[axis]
    dtypes = {15: ["int32"], 16: ["int32", "int16"], 17: ["int32", "int16", "uint16", "int8", "uint8"]}
    dtype = random.choice(dtypes[min(opset, 17)]) if shape else "int32"
    return given | {"indices": np.asarray(random.integers(lowest, x.shape[axis], shape)).astype(dtype)}


@case("gather_along_axis")
def gather_along_axis(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), NUMBERS)
    axis, shape = axis_of(random, x.ndim), list(x.shape)
    shape[axis] = int(random.integers(1, 6))
    lowest = 0 if opset >= 17 else -x.shape[axis]
    return {"x": x, "axis": axis, "indices": random.integers(lowest, x.shape[axis], shape).astype(np.int32)}


@case("scatter_along_axis")  # in other modes Apple's own computation updates as well
def scatter_along_axis(random: Random, opset: int) -> dict[str, Any]:
    data = values(random, shape_of(random), NUMBERS)
    axis, shape = axis_of(random, data.ndim), list(data.shape)
    count = int(random.integers(1, data.shape[axis] + 1))
    shape[axis] = count
    # No place twice: which of two updates stays is nobody's promise.
    order = np.argsort(random.random(data.shape), axis=axis).take(np.arange(count), axis=axis)
    return {
        "data": data,
        "indices": order.astype(np.int32),
        "updates": values(random, tuple(shape), (data.dtype.name,)),
        "axis": axis,
        "mode": "update",
    }


@case("argsort")
def argsort(random: Random, opset: int) -> dict[str, Any]:
    x = distinct(random, shape_of(random), NUMBERS)
    return {"x": x, "axis": axis_of(random, x.ndim), "ascending": flag(random)}


@case("topk")
def topk(random: Random, opset: int) -> dict[str, Any]:
    x = distinct(random, shape_of(random, largest=4), NUMBERS)
    axis = axis_of(random, x.ndim)
    given = {"x": x, "axis": axis, "k": int(random.integers(1, x.shape[axis] + 1)), "ascending": flag(random)}
    if opset >= 16 and flag(random):
        given["return_indices"] = False
    elif opset >= 17 and flag(random):
        given["output_indices_dtype"] = "uint16"
    return given


@case("cumsum")  # exclusive it is exempt: Apple's own computation raises
def cumsum(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random), NUMBERS)
    return {"x": x, "axis": int(random.integers(-1, x.ndim)), "reverse": flag(random)}


@case("fill")
def fill(random: Random, opset: int) -> dict[str, Any]:
    value = values(random, (), ANY)[()]
    return {"shape": np.array(shape_of(random), np.int32)} | ({"value": value} if flag(random) else {})


@case("fill_like")
def fill_like(random: Random, opset: int) -> dict[str, Any]:
    return {"ref_tensor": values(random, shape_of(random), ANY), "value": values(random, (), ANY)[()]}


@case("range_1d")
def range_1d(random: Random, opset: int) -> dict[str, Any]:
    # Steps that floats hold exactly: where a range ends is then beyond doubt.
    dtype = np.dtype(str(random.choice(NUMBERS)))
    step = int(random.choice([1, 2, 3, -1, -2])) * (1 if dtype.kind == "i" else 0.25)
    start = int(random.integers(-5, 5))
    end = start + step * int(random.integers(1, 9)) - (step / 2 if dtype.kind == "f" and flag(random) else 0)
    return {"start": dtype.type(start), "end": dtype.type(end), "step": dtype.type(step)}


@case("matmul")
def matmul(random: Random, opset: int) -> dict[str, Any]:
    batch = shape_of(random, 0, 3)
    left, right = (tuple(1 if random.random() < 0.3 else size for size in batch) for _ in range(2))
    rows, inner, columns = (int(size) for size in random.integers(1, 5, 3))
    transpose_x, transpose_y = flag(random), flag(random)
    x = values(random, (*left, *((inner, rows) if transpose_x else (rows, inner))), NUMBERS)
    y = values(
        random,
        (*right[len(right) // 2 :], *((columns, inner) if transpose_y else (inner, columns))),
        (x.dtype.name,),
    )
    if x.ndim == 2 and rows == 1 and not transpose_x:
        x = x[0]
    return {"x": x, "y": y, "transpose_x": transpose_x, "transpose_y": transpose_y}


@case("linear")
def linear(random: Random, opset: int) -> dict[str, Any]:
    x = values(random, shape_of(random, 1, 3), NUMBERS)
    weight = values(random, (int(random.integers(1, 5)), x.shape[-1]), (x.dtype.name,))
    given = {"x": x, "weight": weight}
    return given | ({"bias": values(random, weight.shape[:1], (x.dtype.name,))} if flag(random) else {})


@case("einsum")
def einsum(random: Random, opset: int) -> dict[str, Any]:
    b, c, h, w, u = (int(size) for size in random.integers(1, 5, 5))
    four = flag(random)
    x = values(random, (b, c, h, w) if four else (c, h, w), FLOATS)
    y_shape = (1 if flag(random) else b, w, 1 if flag(random) else h, u) if four else (w, h, u)
    y = values(random, y_shape, (x.dtype.name,))
    return {"values": [x, y], "equation": "nchw,nwhu->nchu" if four else "chw,whr->chr"}
