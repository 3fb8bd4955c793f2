"""Arithmetic, comparison and logic: ops on every element alike, to which axis order does not matter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import Shape, permuted
from onnxport.converters.tflite.numbers import doubles
from onnxport.converters.tflite.registry import REGISTRY, lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar

# ONNX op -> tfl op of one operand with the same meaning.
UNARY = {
    "Ceil": "ceil",
    "Cos": "cos",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "neg",
    "Not": "logical_not",
    "Round": "round",  # both round half to even
    "Sigmoid": "logistic",
    "Sin": "sin",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}

# ONNX op -> tfl op of two operands that broadcasts as ONNX does.
BINARY = {
    "Add": "add",
    "And": "logical_and",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "mul",
    "Or": "logical_or",
    "Sub": "sub",
    "Xor": "not_equal",
}

# Variadic ONNX op -> tfl op of two operands to chain.
VARIADIC = {"Sum": "add", "Max": "maximum", "Min": "minimum"}

Body = Callable[[Tensor, Shape], Tensor]


def pointwise(node: TflNode, tfl: TflBuilder, body: Body) -> None:
    """Emits `body(tensor, physical shape)` on the first operand in whatever axis order it has."""
    x = node.x
    order = tfl.common_order(x)
    result = body(tfl.tensor(x, order), permuted(x.shape, order))
    node.emit(tfl.computed(result, order))


def _unary(name: str, node: TflNode, tfl: TflBuilder) -> None:
    pointwise(node, tfl, lambda x, shape: tfl.op(name, [x], shape))


def _binary(name: str, node: TflNode, tfl: TflBuilder) -> None:
    node.emit(_joined(tfl, name, node.input(0), node.input(1)))


def _variadic(name: str, node: TflNode, tfl: TflBuilder) -> None:
    node.emit(reduce(partial(_joined, tfl, name), node.rest()))


def _joined(tfl: TflBuilder, name: str, a: Value, b: Value) -> Value:
    if name in ("add", "sub") and doubles.is_exact(tfl, a, b):
        return doubles.total(tfl, name, a, b)
    return broadcast(tfl, name, a, b)


REGISTRY.table({op: partial(_unary, name) for op, name in UNARY.items()})
REGISTRY.table({op: partial(_binary, name) for op, name in BINARY.items()})
REGISTRY.table({op: partial(_variadic, name) for op, name in VARIADIC.items()})


@lower("Mean")
def mean(node: TflNode, tfl: TflBuilder) -> None:
    """The mean of all operands, element by element (ONNX Mean-13)."""
    values = node.rest()
    total = reduce(partial(broadcast, tfl, "add"), values)
    count = scalar(len(values), total.dtype)
    node.emit(broadcast(tfl, "div", total, count))


@lower("Identity")
def identity(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(node.x)


@lower("Dropout")
def dropout(node: TflNode, tfl: TflBuilder) -> None:
    """y = x at inference, its mask all true (ONNX Dropout-13); ratio and seed matter to training only."""
    node.ignore("seed", "ratio")
    ratio, training = node.optional(1), node.optional(2)
    drops_nothing = ratio is not None and ratio.constant is not None and not ratio.constant.any()
    if training is not None and not drops_nothing and (training.constant is None or training.constant.any()):
        node.unsupported("drops elements at random in training mode; export the model for inference")
    if node.wants_output(1):
        shape = node.output_shape(1)
        if None in shape:
            node.unsupported("its mask output is used, of an open size; fix the size with --shape NAME=...")
        mask = np.ones([dim or 0 for dim in shape], bool)
        node.emit(Value(shape, bool, constant=mask), 1)
    node.emit(node.x)


@lower("Abs")
def absolute(node: TflNode, tfl: TflBuilder) -> None:
    """|x| (ONNX Abs-13); for int64, which TFLite's ABS lacks, max(x, -x)."""

    def body(x: Tensor, shape: Shape) -> Tensor:
        if node.x.dtype == np.int64:
            return tfl.op("maximum", [x, tfl.op("neg", [x], shape)], shape)
        return x if node.x.dtype.kind == "u" else tfl.op("abs", [x], shape)

    pointwise(node, tfl, body)


@lower("Sign")
def sign(node: TflNode, tfl: TflBuilder) -> None:
    """-1, 0 or 1 (ONNX Sign-13); for int64, which TFLite's SIGN lacks, x limited to that range."""

    def body(x: Tensor, shape: Shape) -> Tensor:
        if node.x.dtype != np.int64:
            return tfl.op("sign", [x], shape)
        above = tfl.op("maximum", [x, tfl.constant(-1, np.int64)], shape)
        return tfl.op("minimum", [above, tfl.constant(1, np.int64)], shape)

    pointwise(node, tfl, body)


@lower("Clip")
def clip(node: TflNode, tfl: TflBuilder) -> None:
    """y = min(max(x, low), high) (ONNX Clip-13); bounds may be absent, or computed at run time."""
    x, low, high = node.x, node.optional(1), node.optional(2)
    bounds = [None if v is None or v.constant is None else float(v.constant.item()) for v in (low, high)]
    if bounds == [0.0, 6.0] and x.dtype == np.float32:
        # Fuses into the convolution before it.
        pointwise(node, tfl, lambda tensor, shape: tfl.op("relu6", [tensor], shape))
        return
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = broadcast(tfl, name, x, bound)
    node.emit(x)


@lower("Where")
def where(node: TflNode, tfl: TflBuilder) -> None:
    """y = a where the condition holds, b elsewhere, all broadcast (ONNX Where-16)."""
    node.emit(select(tfl, *node.rest()))


def select(tfl: TflBuilder, condition: Value, a: Value, b: Value) -> Value:
    return broadcast(tfl, "select_v2", condition, a, b)


@lower("IsNaN")
def is_nan(node: TflNode, tfl: TflBuilder) -> None:
    """Whether an element is no number (ONNX IsNaN-20): the only one that differs from itself."""
    node.emit(broadcast(tfl, "not_equal", node.x, node.x))


@lower("IsInf")
def is_inf(node: TflNode, tfl: TflBuilder) -> None:
    """Whether an element is infinite, of either sign or of the one asked for (ONNX IsInf-20)."""
    x = node.x
    signs = [
        sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if node.attribute(name, 1)
    ]
    if not signs:
        node.unsupported("detects neither sign")
    found = [broadcast(tfl, "equal", x, scalar(sign * np.inf, x.dtype)) for sign in signs]
    node.emit(reduce(partial(broadcast, tfl, "logical_or"), found))
