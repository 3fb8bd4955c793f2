"""More than five dimensions inside a graph, which MIL does not hold, at fixed sizes and at open ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.core.errors import CannotConvertError
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array, difference
from tests.converters.tflite.models import model_of, run_onnx

X = np.random.default_rng(0).standard_normal((2, 8, 6, 4)).astype(np.float32)
LARGER = np.random.default_rng(1).standard_normal((3, 8, 4, 10)).astype(np.float32)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


CUT = node("Reshape", "x cut", "six")
BACK = node("Reshape", "swapped back", "y")
# What is done to [2, 8, 6, 4], and the constants for it.
GRAPHS: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto]]] = {
    "pixel shuffle": (
        [CUT, node("Transpose", "six", "swapped", perm=[0, 1, 4, 2, 5, 3]), BACK],
        [ints("cut", 2, 2, 2, 2, 6, 4), ints("back", 2, 2, 12, 8)],
    ),
    "windows": (
        [CUT, node("Transpose", "six", "swapped", perm=[0, 2, 4, 3, 5, 1]), BACK],
        [ints("cut", -1, 8, 3, 2, 2, 2), ints("back", -1, 4, 8)],
    ),
    "a mean over cells": (
        [CUT, node("ReduceMean", "six axes", "y", keepdims=0)],
        [ints("cut", -1, 8, 3, 2, 2, 2), ints("axes", 3, 5)],
    ),
    "the largest of cells, axes kept": (
        [CUT, node("ReduceMax", "six axes", "swapped", keepdims=1), BACK],
        [ints("cut", -1, 8, 3, 2, 2, 2), ints("axes", 2, 3, 5), ints("back", -1, 4, 4)],
    ),
    "all six reversed": (
        [CUT, node("Transpose", "six", "swapped", perm=[5, 4, 3, 2, 1, 0]), BACK],
        [ints("cut", 2, 2, 4, 3, 2, 4), ints("back", 4, -1)],
    ),
    "eight axes": (
        [CUT, node("Transpose", "six", "swapped", perm=[7, 2, 5, 0, 3, 6, 1, 4]), BACK],
        [ints("cut", 2, 2, 2, 2, 3, 2, 2, 2), ints("back", 4, -1)],
    ),
    "nearest neighbour by Expand": (
        [
            node("Unsqueeze", "x axes", "six"),
            node("Expand", "six shape", "swapped"),
            BACK,
        ],
        [ints("axes", 3, 5), ints("shape", 2, 8, 6, 2, 4, 3), ints("back", 2, 8, 12, 12)],
    ),
    "heads taken apart": (
        [
            CUT,
            node("Transpose", "six", "swapped", perm=[2, 0, 1, 3, 4, 5]),
            node("Gather", "swapped one", "first", axis=0),
            node("Gather", "swapped last", "second", axis=0),
            node("Add", "first second", "y"),
        ],
        [
            ints("cut", 2, 2, 4, 3, 2, 4),
            numpy_helper.from_array(np.array(1), "one"),
            numpy_helper.from_array(np.array(-1), "last"),
        ],
    ),
    "cut and joined": (
        [
            CUT,
            node("Split", "six", "a b", axis=3, num_outputs=2),
            node("Slice", "six starts ends axes", "c"),
            node("Concat", "b c a", "swapped", axis=3),
            BACK,
        ],
        [
            ints("cut", 2, 2, 4, 3, 2, 4),
            *(ints("starts", 1), ints("ends", 3), ints("axes", 3)),
            ints("back", 2, 8, 5, -1),
        ],
    ),
    "elementwise between": (
        [
            CUT,
            node("Sigmoid", "six", "gate"),
            node("Mul", "six gate", "silu"),
            node("Add", "silu half", "more"),
            node("Squeeze", "more axes", "y"),
        ],
        [
            ints("cut", 2, 2, 1, 4, 6, 4),
            ints("axes", 2),
            numpy_helper.from_array(np.float32([0.5]), "half"),
        ],
    ),
    "sizes of it": (
        [
            CUT,
            node("Shape", "six", "sizes"),
            node("Tile", "six sizes", "many"),
            node("Flatten", "many", "y", axis=4),
        ],
        [ints("cut", 2, 2, 2, 2, 6, 4)],
    ),
}


def taken_in(coreml: CoremlConformance, graph: str, feeds: list[dict[str, Array]], dims: Any) -> None:
    nodes, constants = GRAPHS[graph] if graph in GRAPHS else OPEN[graph]
    model = model_of(nodes, {"x": X}, constants, open_dims={"x": dims} if dims else {})
    answers = coreml.convert_and_run(model, feeds)
    for feed, answer in zip(feeds, answers, strict=True):
        (expected,) = run_onnx(model, feed).values()
        assert not difference(expected, next(iter(answer.values())))


@pytest.mark.parametrize("graph", GRAPHS)
def test_six_axes_inside(coreml: CoremlConformance, graph: str) -> None:
    taken_in(coreml, graph, [{"x": X}], None)


@pytest.mark.parametrize("graph", ["pixel shuffle", "windows", "elementwise between", "heads taken apart"])
def test_one_of_them_open(coreml: CoremlConformance, graph: str) -> None:
    nodes, constants = GRAPHS[graph]
    free = [
        ints("cut", -1, *numpy_helper.to_array(constants[0])[1:]) if c.name == "cut" else c for c in constants
    ]
    free = [
        ints("back", -1, *numpy_helper.to_array(c)[1:])
        if c.name == "back" and graph == "pixel shuffle"
        else c
        for c in free
    ]
    model = model_of(nodes, {"x": X}, free, open_dims={"x": ["N", *X.shape[1:]]})
    feeds: list[dict[str, Array]] = [{"x": X}, {"x": X[:1]}, {"x": np.concatenate([X, X])}]
    for feed, answer in zip(feeds, coreml.convert_and_run(model, feeds), strict=True):
        (expected,) = run_onnx(model, feed).values()
        assert not difference(expected, next(iter(answer.values())))


# Windows of an image of open height and width, sizes computed as torch exports them.
OPEN: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto]]] = {
    "windows of open images": (
        [
            node("Shape", "x", "n", end=1),
            node("Shape", "x", "h", start=2, end=3),
            node("Shape", "x", "w", start=3),
            node("Div", "h two", "rows"),
            node("Div", "w two", "columns"),
            node("Concat", "n eight rows two columns two", "cut", axis=0),
            node("Reshape", "x cut", "six"),
            node("Transpose", "six", "swapped", perm=[0, 2, 4, 3, 5, 1]),
            node("Reshape", "swapped back", "y"),
        ],
        [ints("two", 2), ints("eight", 8), ints("back", -1, 4, 8)],
    ),
}


@pytest.mark.parametrize("graph", OPEN)
def test_several_of_them_open(coreml: CoremlConformance, graph: str) -> None:
    taken_in(coreml, graph, [{"x": X}, {"x": LARGER}], ["N", 8, "H", "W"])


def test_what_is_not_said_in_five_is_refused_by_name(coreml: CoremlConformance) -> None:
    nodes = [CUT, helper.make_node("ReduceMean", ["six", "axes"], ["y"], "mean", keepdims=0)]
    model = model_of(nodes, {"x": X}, [ints("cut", 2, 2, 4, 3, 2, 4), ints("axes", 0, 2, 4)])
    with pytest.raises(CannotConvertError, match=r"mean.*6 dimensions"):
        coreml.convert_and_run(model, [{"x": X}])
