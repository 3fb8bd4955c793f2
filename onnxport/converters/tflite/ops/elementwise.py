"""Ops that treat every element alike: arithmetic, comparison, activations. Axis order does not matter to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from onnxport.converters.tflite.builder import Tensor, TflBuilder, TflNode, Value, optional_constant
from onnxport.converters.tflite.layout import Shape, permuted
from onnxport.converters.tflite.registry import REGISTRY, lower

# ONNX op -> tfl op of one operand with the same meaning.
UNARY = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Cos": "cos",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "Log": "log",
    "Neg": "neg",
    "Not": "logical_not",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sin": "sin",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}

# ONNX op -> (tfl op of two operands that broadcasts as ONNX does, whether the result is boolean).
BINARY = {
    "Add": ("add", False),
    "And": ("logical_and", True),
    "Div": ("div", False),
    "Equal": ("equal", True),
    "Greater": ("greater", True),
    "GreaterOrEqual": ("greater_equal", True),
    "Less": ("less", True),
    "LessOrEqual": ("less_equal", True),
    "Mul": ("mul", False),
    "Or": ("logical_or", True),
    "Pow": ("pow", False),
    "Sub": ("sub", False),
    "Xor": ("not_equal", True),
}

# Variadic ONNX op -> tfl op of two operands to chain.
VARIADIC = {"Sum": "add", "Max": "maximum", "Min": "minimum"}

Body = Callable[[Tensor, Shape], Tensor]


def pointwise(node: TflNode, tfl: TflBuilder, body: Body, dtype: np.dtype[Any] | type | None = None) -> None:
    """Emits `body(tensor, physical shape)` on the first operand in whatever axis order it has."""
    x = node.x
    order = tfl.common_order(x)
    result = body(tfl.tensor(x, order), permuted(x.shape, order))
    node.emit(tfl.computed(result, x.dtype if dtype is None else dtype, order))


def broadcast(tfl: TflBuilder, name: str, values: list[Value], shape: Shape, dtype: np.dtype[Any]) -> Value:
    """Emits `tfl.<name>` on operands that broadcast to the logical `shape`."""
    rank = len(shape)
    order = (
        tfl.common_order(*values) if max(v.rank for v in values) == rank else tuple(range(rank))
    )
    operands = [tfl.aligned(value, order) for value in values]
    fused = {"fused_activation_function": "NONE"} if name in ("add", "sub", "mul", "div") else {}
    return tfl.computed(tfl.op(name, operands, permuted(shape, order), dtype, **fused), dtype, order)


def broadcast_shape(*shapes: Shape) -> Shape:
    """NumPy's broadcast of shapes in which None is open; an open one against 1 stays open."""
    rank = max(len(shape) for shape in shapes)
    columns = zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes], strict=True)
    return tuple(_broadcast_dim(set(column)) for column in columns)


def _broadcast_dim(sizes: set[int | None]) -> int | None:
    known = [size for size in sizes if size not in (1, None)]
    if known:
        return known[0]
    return None if None in sizes else 1


def _unary(name: str) -> Callable[[TflNode, TflBuilder], None]:
    def lowering(node: TflNode, tfl: TflBuilder) -> None:
        pointwise(node, tfl, lambda x, shape: tfl.op(name, [x], shape, node.x.dtype))

    return lowering


def _binary(name: str, is_boolean: bool) -> Callable[[TflNode, TflBuilder], None]:
    def lowering(node: TflNode, tfl: TflBuilder) -> None:
        a, b = node.input(0), node.input(1)
        shape = broadcast_shape(a.shape, b.shape)
        node.emit(broadcast(tfl, name, [a, b], shape, np.dtype(bool) if is_boolean else a.dtype))

    return lowering


def _variadic(name: str) -> Callable[[TflNode, TflBuilder], None]:
    def lowering(node: TflNode, tfl: TflBuilder) -> None:
        def chain(a: Value, b: Value) -> Value:
            return broadcast(tfl, name, [a, b], broadcast_shape(a.shape, b.shape), a.dtype)

        node.emit(reduce(chain, node.rest()))

    return lowering


REGISTRY.table({op: _unary(name) for op, name in UNARY.items()})
REGISTRY.table({op: _binary(*entry) for op, entry in BINARY.items()})
REGISTRY.table({op: _variadic(name) for op, name in VARIADIC.items()})


@lower("Identity")
def identity(node: TflNode, tfl: TflBuilder) -> None:
    node.emit(node.x)


@lower("Dropout")
def dropout(node: TflNode, tfl: TflBuilder) -> None:
    """y = x at inference (ONNX Dropout-13); ratio and seed matter to training only."""
    node.ignore("seed", "ratio")
    node.optional(1)
    training = optional_constant(node, 2, "training_mode")
    if training is not None and training.item():
        node.unsupported("training_mode is set; export the model for inference")
    if node.wants_output(1):
        node.unsupported("its mask output is used, which only training needs")
    node.emit(node.x)


@lower("LeakyRelu")
def leaky_relu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, alpha * x elsewhere (ONNX LeakyRelu-16)."""
    alpha = node.attribute("alpha", 0.01)
    pointwise(node, tfl, lambda x, shape: tfl.op("leaky_relu", [x], shape, node.x.dtype, alpha=float(alpha)))


@lower("Elu")
def elu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, alpha * (exp(x) - 1) elsewhere (ONNX Elu-6); TFLite's ELU knows alpha 1 only."""
    alpha = node.attribute("alpha", 1.0)
    if alpha != 1.0:
        node.unsupported(f"alpha {alpha}; TFLite's ELU has alpha 1")
    pointwise(node, tfl, lambda x, shape: tfl.op("elu", [x], shape, node.x.dtype))


@lower("Gelu")
def gelu(node: TflNode, tfl: TflBuilder) -> None:
    """Gaussian error linear unit, exact or by its tanh approximation (ONNX Gelu-20)."""
    approximate = node.attribute("approximate", "none") == "tanh"
    pointwise(
        node, tfl, lambda x, shape: tfl.op("gelu", [x], shape, node.x.dtype, approximate=approximate)
    )


@lower("Reciprocal")
def reciprocal(node: TflNode, tfl: TflBuilder) -> None:
    one = np.ones((), node.x.dtype)
    pointwise(node, tfl, lambda x, shape: tfl.binary("div", tfl.constant(one), x, shape))


@lower("HardSigmoid")
def hard_sigmoid(node: TflNode, tfl: TflBuilder) -> None:
    """y = max(0, min(1, alpha * x + beta)) (ONNX HardSigmoid-6)."""
    alpha, beta = (np.float32(node.attribute(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5)))

    def body(x: Tensor, shape: Shape) -> Tensor:
        scaled = tfl.binary("mul", x, tfl.constant(alpha), shape)
        return tfl.op("relu_0_to_1", [tfl.binary("add", scaled, tfl.constant(beta), shape)], shape, np.float32)

    pointwise(node, tfl, body)


@lower("Clip")
def clip(node: TflNode, tfl: TflBuilder) -> None:
    """y = min(max(x, low), high) (ONNX Clip-13); bounds may be absent, or computed at run time."""
    low, high = node.optional(1), node.optional(2)
    bounds = [None if v is None or v.constant is None else float(v.constant.item()) for v in (low, high)]

    def body(x: Tensor, shape: Shape) -> Tensor:
        if bounds == [0.0, 6.0] and node.x.dtype == np.float32:
            return tfl.op("relu6", [x], shape, node.x.dtype)  # fuses into the convolution before it
        for name, bound in (("maximum", low), ("minimum", high)):
            if bound is not None:
                x = tfl.binary(name, x, tfl.tensor(bound), shape)
        return x

    pointwise(node, tfl, body)


@lower("PRelu")
def prelu(node: TflNode, tfl: TflBuilder) -> None:
    """y = x where x >= 0, slope * x elsewhere, slope broadcast to x one way (ONNX PRelu-16)."""
    x, slope = node.input(0), node.input(1)
    order = tfl.common_order(x)
    if slope.constant is None:
        node.unsupported("the slope is computed at run time; TFLite needs a constant")
    full = slope.constant.reshape((1,) * (x.rank - slope.rank) + slope.shape)
    if full.shape[0] != 1:
        node.unsupported("the slope differs within the batch; TFLite's PRELU shares it over the batch")
    # TFLite's alpha has no batch axis (kernels/activations.cc).
    if order[0] != 0:
        order = tuple(range(x.rank))
    alpha = tfl.constant(np.transpose(full, order)[0])
    result = tfl.op("prelu", [tfl.tensor(x, order), alpha], permuted(x.shape, order), x.dtype)
    node.emit(tfl.computed(result, x.dtype, order))


@lower("Cast")
def cast(node: TflNode, tfl: TflBuilder) -> None:
    """Element type conversion (ONNX Cast-21); `saturate` concerns float8 only, which has no TFLite type."""
    node.ignore("saturate", "round_mode")
    node.attribute("to")
    dtype = node.output_dtype()
    if dtype == node.x.dtype:
        node.emit(node.x)
        return
    pointwise(node, tfl, lambda x, shape: tfl.op("cast", [x], shape, dtype), dtype)


@lower("Where")
def where(node: TflNode, tfl: TflBuilder) -> None:
    """y = a where the condition holds, b elsewhere, all broadcast (ONNX Where-16)."""
    condition, a, b = node.rest()
    shape = broadcast_shape(condition.shape, a.shape, b.shape)
    node.emit(broadcast(tfl, "select_v2", [condition, a, b], shape, a.dtype))
