"""Arithmetic, comparison and logic: ops on every element alike, for which the axis order does not matter."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from onnxport.converters.semantics import infinity_signs
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.numbers import doubles
from onnxport.converters.tflite.registry import REGISTRY, lower
from onnxport.converters.tflite.values import Value, constant

# ONNX op -> tfl op of one operand with the same meaning.
_UNARY = {
    "Ceil": "ceil",
    "Cos": "cos",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
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
_BINARY = {
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
_VARIADIC = {"Sum": "add", "Max": "maximum", "Min": "minimum"}


def _lower_unary(name: str, node: TflNode, tfl: TflBuilder) -> None:
    node.emit(tfl.apply(name, node.x))


def _lower_variadic(name: str, node: TflNode, tfl: TflBuilder) -> None:
    def join(a: Value, b: Value) -> Value:
        if name in ("add", "sub") and doubles.is_exact(tfl, a, b):
            return doubles.total(tfl, name, a, b)
        return tfl.broadcast(name, a, b)

    node.emit(reduce(join, node.rest()))


REGISTRY.table({op: partial(_lower_unary, name) for op, name in _UNARY.items()})
REGISTRY.table({op: partial(_lower_variadic, name) for op, name in (_BINARY | _VARIADIC).items()})


@lower("Mean")
def mean(node: TflNode, tfl: TflBuilder) -> None:
    """The mean of all operands, element by element (ONNX Mean-13)."""
    values = node.rest()
    total = reduce(partial(tfl.broadcast, "add"), values)
    node.emit(tfl.broadcast("div", total, len(values)))


@lower("Identity")
def identity(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(node.x)


@lower("Dropout")
def dropout(node: TflNode, tfl: TflBuilder) -> None:
    """y = x at inference, its mask all true (ONNX Dropout-13); ratio and seed matter in training only."""
    node.ignore("seed", "ratio")
    ratio, training = node.optional(1), node.optional(2)
    drops_nothing = ratio is not None and ratio.constant is not None and not ratio.constant.any()
    if training is not None and not drops_nothing and (training.constant is None or training.constant.any()):
        node.unsupported("drops elements at random in training mode; export the model for inference")
    if node.wants_output(1):
        shape = node.output_shape(1)
        if None in shape:
            node.unsupported("its mask output is used, of an open size; fix the size with --shape NAME=...")
        node.emit(constant(np.ones([dim or 0 for dim in shape], bool)), 1)
    node.emit(node.x)


@lower("Abs")
def absolute(node: TflNode, tfl: TflBuilder) -> None:
    """|x| (ONNX Abs-13); max(x, -x) for int64, which TFLite's ABS lacks."""
    x = node.x
    if x.dtype == np.int64:
        node.emit(tfl.broadcast("maximum", x, tfl.apply("neg", x)))
    else:
        node.emit(x if x.dtype.kind == "u" else tfl.apply("abs", x))


@lower("Sign")
def sign(node: TflNode, tfl: TflBuilder) -> None:
    """-1, 0 or 1 (ONNX Sign-13); x clipped to that range for int64, which TFLite's SIGN lacks."""
    x = node.x
    if x.dtype == np.int64:
        node.emit(tfl.broadcast("minimum", tfl.broadcast("maximum", x, -1), 1))
    else:
        node.emit(tfl.apply("sign", x))


@lower("Clip")
def clip(node: TflNode, tfl: TflBuilder) -> None:
    """y = min(max(x, low), high) (ONNX Clip-13); bounds may be absent, or computed at run time."""
    x, low, high = node.x, node.optional(1), node.optional(2)
    bounds = [None if v is None or v.constant is None else float(v.constant.item()) for v in (low, high)]
    if bounds == [0.0, 6.0] and x.dtype == np.float32:
        node.emit(tfl.apply("relu6", x))  # fuses into the convolution before it
        return
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = tfl.broadcast(name, x, bound)
    node.emit(x)


@lower("Where")
def where(node: TflNode, tfl: TflBuilder) -> None:
    """y = a where the condition holds, b elsewhere, all broadcast (ONNX Where-16)."""
    node.emit(tfl.broadcast("select_v2", *node.rest()))


@lower("IsNaN")
def is_nan(node: TflNode, tfl: TflBuilder) -> None:
    """x != x (ONNX IsNaN-20)."""
    node.emit(tfl.broadcast("not_equal", node.x, node.x))


@lower("IsInf")
def is_inf(node: TflNode, tfl: TflBuilder) -> None:
    """x == inf, x == -inf, or either (ONNX IsInf-20)."""
    found = [tfl.broadcast("equal", node.x, sign * np.inf) for sign in infinity_signs(node)]
    node.emit(reduce(partial(tfl.broadcast, "logical_or"), found))
