"""A hypothesis strategy of whole ONNX graphs: random DAGs over the operators, shapes and element types that we take.

A graph grows node by node out of values that exist; the table at the end says what may grow. Every value knows its
shape, its element type, and whether it is exact: where two right implementations round differently, a comparison, a
rounding or an ArgMax may fall on the other side, so those are only drawn on values that nothing has rounded yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from tests.conformance.tflite import Array
from tests.converters.tflite.models import model_of

MOST_NODES = 10
_DTYPES = ("float32",) * 6 + ("int32", "int64", "bool", "float16", "int8", "uint8")
_LARGEST = 512  # elements of one value


@dataclass(frozen=True)
class Value:
    """A tensor of the graph; `tame` when it lies within a few units around 0."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool = True

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")


@dataclass(frozen=True)
class Graph:
    """A drawn model, and one feed for it."""

    model: Model
    feeds: dict[str, Array]
    text: str

    def __repr__(self) -> str:
        return self.text


class Growing:
    """A graph under construction."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.pool: list[Value] = []
        self.nodes: list[onnx.NodeProto] = []
        self.feeds: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}

    # ---- choices

    def one_of(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        number: int = self.draw(st.integers(low, high))
        return number

    def values(self, fits: Callable[[Value], bool]) -> list[Value]:
        """Return the values that fit, the newest first: graphs that grow deep find more than those that grow wide."""
        return [value for value in reversed(self.pool) if fits(value)]

    def array(self, shape: Sequence[int], dtype: str) -> Array:
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if dtype.startswith("float"):
            return self.random.uniform(-2, 2, shape).astype(dtype)
        return self.random.integers(0 if dtype == "uint8" else -4, 5, shape).astype(dtype)

    # ---- growth

    def input(self) -> Value:
        shape = tuple(self.number(1, 4) for _ in range(self.number(0, 4)))
        value = Value(f"x{len(self.feeds)}", shape, self.one_of(_DTYPES))
        self.feeds[value.name] = self.array(shape, value.dtype)
        self.pool.append(value)
        return value

    def constant(self, array: Any, dtype: str = "int64") -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def random_constant(self, shape: Sequence[int], dtype: str) -> str:
        return self.constant(self.array(shape, dtype), dtype)

    def node(
        self,
        op: str,
        inputs: Sequence[Value | str],
        shape: Sequence[int],
        dtype: str = "",
        *,
        exact: bool = False,
        outputs: int = 1,
        **attributes: Any,
    ) -> Value:
        """Adds a node; its (first) result is of the first operand's type unless told, and exact if all operands are."""
        operands = [value for value in inputs if isinstance(value, Value)]
        names = [f"{op.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        text = [value.name if isinstance(value, Value) else value for value in inputs]
        self.nodes.append(helper.make_node(op, text, names, names[0], **attributes))
        result = Value(
            names[0],
            tuple(shape),
            dtype or operands[0].dtype,
            exact and all(value.exact for value in operands),
        )
        if prod(result.shape) <= _LARGEST:
            self.pool.append(result)
        return result

    def other(self, value: Value) -> Value | str:
        """A second operand that broadcasts with `value`: one of the graph's, or a constant."""
        fitting = self.values(lambda v: v.dtype == value.dtype and _broadcast(v, value) is not None)
        if self.draw(st.booleans()):
            return self.one_of(fitting)
        thinned = [self.one_of([size, size, 1]) for size in value.shape][self.number(0, value.rank) :]
        return self.random_constant(thinned, value.dtype)

    def finished(self) -> Graph:
        used = {name for node in self.nodes for name in node.input}
        outputs = [name for node in self.nodes for name in node.output if name not in used]
        open_dims = {}
        for name, array in self.feeds.items():
            is_open = [self.number(0, 3) == 0 for _ in array.shape]
            open_dims[name] = [
                f"{name}_{i}" if o else size
                for i, (o, size) in enumerate(zip(is_open, array.shape, strict=True))
            ]
        initializers = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        model = model_of(self.nodes, self.feeds, initializers, outputs=outputs, open_dims=open_dims)
        text = [f"{name}: {array.dtype}{open_dims[name]}" for name, array in self.feeds.items()]
        text += [helper.printable_node(node) for node in self.nodes]
        text += [f"{name} = {array.tolist()}" for name, array in self.constants.items() if array.size < 9]
        return Graph(model, self.feeds, "\n".join(text))


@st.composite
def graphs(draw: Callable[[Any], Any]) -> Graph:
    """Up to MOST_NODES drawn operators over one to three inputs; whatever no node uses is an output."""
    growing = Growing(draw)
    for _ in range(growing.number(1, 3)):
        growing.input()
    wanted = growing.number(1, MOST_NODES)
    for _ in range(3 * wanted):
        if len(growing.nodes) >= wanted:
            break
        fits, grow = growing.one_of(GROWTHS)
        if candidates := growing.values(fits):
            grow(growing, growing.one_of(candidates))
    if not growing.nodes:
        growing.node("Identity", [growing.pool[0]], growing.pool[0].shape)
    return growing.finished()


def _broadcast(a: Value, b: Value) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return None
    return shape if prod(shape) <= _LARGEST else None


def _joint(g: Growing, value: Value, other: Value | str) -> tuple[int, ...]:
    shape = other.shape if isinstance(other, Value) else g.constants[other].shape
    return np.broadcast_shapes(value.shape, shape)


# ---- what may grow


def unary(g: Growing, x: Value) -> None:
    ops = "Sigmoid Tanh Erf Softplus HardSwish Gelu LeakyRelu Elu Selu Sin Cos Mish Softsign HardSigmoid Celu Exp Atan"
    g.node(g.one_of(ops.split()), [x], x.shape)


def rounding(g: Growing, x: Value) -> None:
    g.node(g.one_of(["Floor", "Ceil", "Round", "Sign", "IsNaN"]), [x], x.shape, exact=True)
    if g.nodes[-1].op_type == "IsNaN":
        g.pool[-1] = Value(g.pool[-1].name, x.shape, "bool")


def plain(g: Growing, x: Value) -> None:
    g.node(
        g.one_of(["Abs", "Neg", "Relu", "Identity"] if x.dtype != "uint8" else ["Abs", "Identity"]),
        [x],
        x.shape,
        exact=True,
    )


def root(g: Growing, x: Value) -> None:
    g.node(g.one_of(["Sqrt", "Identity"]), [g.node("Abs", [x], x.shape, exact=True)], x.shape)


def arithmetic(g: Growing, x: Value) -> None:
    other = g.other(x)
    op = g.one_of(["Add", "Sub", "Mul"])
    g.node(op, [x, other], _joint(g, x, other), exact=not x.is_float)


def extremes(g: Growing, x: Value) -> None:
    other = g.other(x)
    g.node(g.one_of(["Max", "Min"]), [x, other], _joint(g, x, other), exact=True)


def division(g: Growing, x: Value) -> None:
    other = g.array(x.shape, x.dtype)
    g.node(
        "Div",
        [x, g.constant(np.where(np.abs(other) < 1, np.ones((), x.dtype), other), x.dtype)],
        x.shape,
        exact=not x.is_float,
    )


def comparison(g: Growing, x: Value) -> None:
    other = g.other(x)
    if isinstance(other, str) or other.exact:
        op = g.one_of(["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
        g.node(op, [x, other], _joint(g, x, other), "bool", exact=True)


def logic(g: Growing, x: Value) -> None:
    other = g.other(x)
    if g.draw(st.booleans()):
        g.node("Not", [x], x.shape, exact=True)
    else:
        g.node(g.one_of(["And", "Or", "Xor"]), [x, other], _joint(g, x, other), exact=True)


def where(g: Growing, x: Value) -> None:
    condition = g.random_constant(x.shape, "bool")
    fitting = g.values(lambda v: v.dtype == "bool" and _broadcast(v, x) is not None)
    chosen = g.one_of(fitting) if fitting else condition
    other = g.other(x)
    shape = np.broadcast_shapes(_joint(g, x, chosen), _joint(g, x, other))
    g.node("Where", [chosen, x, other], shape, x.dtype, exact=True)


def cast(g: Growing, x: Value) -> None:
    target = g.one_of(["float32", "int32", "int64", "bool", "float32"])
    if x.is_float and not x.exact:
        target = "float32"
    g.node("Cast", [x], x.shape, target, exact=True, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def clip(g: Growing, x: Value) -> None:
    g.node("Clip", [x, g.constant(0, x.dtype), g.constant(1, x.dtype)], x.shape, exact=True)


def reshape(g: Growing, x: Value) -> None:
    count = prod(x.shape)
    options = [
        [-1],
        [1, -1],
        [count, 1],
        list(reversed(x.shape)),
        [*x.shape, 1],
        [x.shape[0] if x.rank else 1, -1],
    ]
    target = g.one_of(options)
    g.node("Reshape", [x, g.constant(target)], np.zeros(count).reshape(target).shape, exact=True)


def transpose(g: Growing, x: Value) -> None:
    order = g.draw(st.permutations(range(x.rank)))
    g.node("Transpose", [x], [x.shape[axis] for axis in order], exact=True, perm=list(order))


def squeeze(g: Growing, x: Value) -> None:
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    if ones and g.draw(st.booleans()):
        axis = g.one_of(ones)
        g.node("Squeeze", [x, g.constant([axis])], x.shape[:axis] + x.shape[axis + 1 :], exact=True)
    elif x.rank < 5:
        axis = g.number(0, x.rank)
        g.node("Unsqueeze", [x, g.constant([axis])], (*x.shape[:axis], 1, *x.shape[axis:]), exact=True)


def concat(g: Growing, x: Value) -> None:
    axis = g.number(0, x.rank - 1)

    def rest(value: Value) -> tuple[int, ...]:
        return value.shape[:axis] + value.shape[axis + 1 :]

    fitting = g.values(lambda v: v.dtype == x.dtype and v.rank == x.rank and rest(v) == rest(x))
    other = g.one_of(fitting)
    size = x.shape[axis] + other.shape[axis]
    g.node("Concat", [x, other], (*x.shape[:axis], size, *x.shape[axis + 1 :]), exact=True, axis=axis)


def split(g: Growing, x: Value) -> None:
    axis = g.number(0, x.rank - 1)
    if x.shape[axis] > 1:
        first = g.number(1, x.shape[axis] - 1)
        sizes = g.constant([first, x.shape[axis] - first])
        shape = (*x.shape[:axis], first, *x.shape[axis + 1 :])
        g.node("Split", [x, sizes], shape, exact=True, outputs=2, axis=axis)


def slice_(g: Growing, x: Value) -> None:
    axis, step = g.number(0, x.rank - 1), g.one_of([1, 1, 2, -1])
    start, end = (0, x.shape[axis] - g.number(0, x.shape[axis] - 1)) if step > 0 else (-1, -(2**62))
    size = len(range(x.shape[axis])[start:end:step] if step > 0 else range(x.shape[axis])[::-1])
    bounds = [g.constant([bound]) for bound in (start, end, axis, step)]
    g.node("Slice", [x, *bounds], (*x.shape[:axis], size, *x.shape[axis + 1 :]), exact=True)


def gather(g: Growing, x: Value) -> None:
    axis = g.number(0, x.rank - 1)
    indices = g.random.integers(
        -x.shape[axis], x.shape[axis], [g.number(1, 3) for _ in range(g.number(0, 2))]
    )
    g.node(
        "Gather",
        [x, g.constant(indices)],
        (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]),
        exact=True,
        axis=axis,
    )


def pad(g: Growing, x: Value) -> None:
    amounts = [g.number(0, 2) for _ in range(2 * x.rank)]
    shape = [
        size + low + high
        for size, low, high in zip(x.shape, amounts[: x.rank], amounts[x.rank :], strict=True)
    ]
    g.node("Pad", [x, g.constant(amounts)], shape, exact=True)


def tile(g: Growing, x: Value) -> None:
    repeats = [g.number(1, 2) for _ in x.shape]
    if g.draw(st.booleans()):
        g.node("Tile", [x, g.constant(repeats)], np.multiply(x.shape, repeats), exact=True)
    else:
        target = [size if size > 1 else g.number(1, 3) for size in x.shape]
        g.node("Expand", [x, g.constant(target)], target, exact=True)


def reduction(g: Growing, x: Value) -> None:
    axes = sorted({g.number(0, x.rank - 1) for _ in range(g.number(1, 2))})
    keep = g.number(0, 1)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    sums = ["ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"]
    op = g.one_of([*(sums if x.is_float else sums[:1]), "ReduceMax", "ReduceMin"])
    exact = op in ("ReduceMax", "ReduceMin") or not x.is_float
    g.node(op, [x, g.constant(axes)], shape, exact=exact, keepdims=keep)


def extreme_place(g: Growing, x: Value) -> None:
    axis = g.number(0, x.rank - 1)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    g.node(g.one_of(["ArgMax", "ArgMin"]), [x], shape, "int64", exact=True, axis=axis)


def softmax(g: Growing, x: Value) -> None:
    g.node(g.one_of(["Softmax", "LogSoftmax"]), [x], x.shape, axis=g.number(-x.rank, x.rank - 1))


def norm(g: Growing, x: Value) -> None:
    scale, bias = (g.random_constant(x.shape[-1:], x.dtype) for _ in range(2))
    g.node("LayerNormalization", [x, scale, bias], x.shape, epsilon=0.1)


def matmul(g: Growing, x: Value) -> None:
    width = g.number(1, 4)
    g.node("MatMul", [x, g.random_constant([x.shape[-1], width], x.dtype)], (*x.shape[:-1], width))


def image(g: Growing, x: Value) -> None:
    """An operator of [N, C, H, W]."""
    n, c, h, w = x.shape
    kind = g.one_of(
        [
            "Conv",
            "Conv",
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "BatchNormalization",
            "Resize",
            "PRelu",
        ]
    )
    if kind == "Conv":
        out, kernel, same = (
            g.number(1, 4),
            [g.number(1, min(3, size)) for size in (h, w)],
            g.draw(st.booleans()),
        )
        weights = g.random_constant([out, c, *kernel], x.dtype)
        sizes = (h, w) if same else (h - kernel[0] + 1, w - kernel[1] + 1)
        attributes = {"auto_pad": "SAME_UPPER"} if same else {}
        g.node("Conv", [x, weights], (n, out, *sizes), **attributes)
    elif kind in ("MaxPool", "AveragePool"):
        kernel = [g.number(1, min(3, size)) for size in (h, w)]
        shape = (n, c, h - kernel[0] + 1, w - kernel[1] + 1)
        g.node(kind, [x], shape, exact=kind == "MaxPool", kernel_shape=kernel)
    elif kind == "GlobalAveragePool":
        g.node(kind, [x], (n, c, 1, 1))
    elif kind == "BatchNormalization":
        scale, bias, mean = (g.random_constant([c], x.dtype) for _ in range(3))
        g.node(kind, [x, scale, bias, mean, g.constant(np.full(c, 1.5), x.dtype)], x.shape)
    elif kind == "PRelu":
        g.node(kind, [x, g.random_constant([c, 1, 1], x.dtype)], x.shape)
    else:
        scales = g.constant([1, 1, 2, 2], "float32")
        asymmetric = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        g.node(kind, [x, "", scales], (n, c, 2 * h, 2 * w), mode="nearest", **asymmetric)


def running_sum(g: Growing, x: Value) -> None:
    g.node("CumSum", [x, g.constant(g.number(0, x.rank - 1))], x.shape, exact=not x.is_float)


def largest(g: Growing, x: Value) -> None:
    count = g.number(1, x.shape[-1])
    g.node("TopK", [x, g.constant([count])], (*x.shape[:-1], count), exact=True, outputs=2)


def shape_of(g: Growing, x: Value) -> None:
    g.node("Shape", [x], [x.rank], "int64", exact=True)


def _float(x: Value) -> bool:
    return x.dtype == "float32"


def _number(x: Value) -> bool:
    return x.dtype != "bool"


def _exact_number(x: Value) -> bool:
    return x.exact and x.dtype in ("float32", "int32", "int64")


def _any(x: Value) -> bool:
    return True


def _has_axes(x: Value) -> bool:
    return x.rank > 0


# Who may grow (which values), and what grows.
GROWTHS: tuple[tuple[Callable[[Value], bool], Callable[[Growing, Value], None]], ...] = (
    (lambda x: x.is_float, unary),
    (_float, unary),
    (lambda x: x.exact and _float(x), rounding),
    (_number, plain),
    (lambda x: x.is_float, root),
    (_number, arithmetic),
    (_number, arithmetic),
    (lambda x: x.dtype in ("float32", "int32", "int64"), extremes),
    (lambda x: x.dtype in ("float32", "int32", "int64"), division),
    (_exact_number, comparison),
    (lambda x: x.dtype == "bool", logic),
    (_any, where),
    (_any, cast),
    (_number, clip),
    (_any, reshape),
    (_has_axes, transpose),
    (_any, squeeze),
    (_has_axes, concat),
    (_has_axes, split),
    (_has_axes, slice_),
    (_has_axes, gather),
    (lambda x: x.rank > 0 and x.dtype != "float16", pad),
    (_has_axes, tile),
    (lambda x: x.rank > 0 and x.dtype in ("float32", "int32"), reduction),
    (lambda x: x.rank > 0 and _exact_number(x), extreme_place),
    (lambda x: x.rank > 0 and _float(x), softmax),
    (lambda x: x.rank > 0 and _float(x), norm),
    (lambda x: x.rank > 1 and _float(x), matmul),
    (lambda x: x.rank == 4 and _float(x), image),
    (lambda x: x.rank == 4 and _float(x), image),
    (lambda x: x.rank > 0 and x.dtype in ("float32", "int32", "int64"), running_sum),
    (lambda x: x.rank > 0 and _exact_number(x) and _float(x), largest),
    (_has_axes, shape_of),
)
