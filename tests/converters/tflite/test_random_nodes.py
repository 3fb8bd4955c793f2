"""Random attributes, shapes and layouts against ONNX Runtime: what a lowering accepts is right, whatever the node.

Each family draws a node that ONNX Runtime accepts. A refusal is no failure here (the conformance list guards what
must convert), a different answer or a crash is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.converters.params import Layout
from onnxport.core.errors import CannotConvertError
from tests.conformance.harness import Array, Harness, difference
from tests.conformance.tflite import Conformance
from tests.converters.tflite.models import model_of, run_onnx

Random = np.random.Generator
SEEDS = 40  # per family; thousands were run when the families were written


class Drawn:
    """A graph under construction: `x` is its input; what else is drawn becomes a constant, or an input of its own."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: list[onnx.NodeProto] = []
        self.feeds: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}

    def floats(self, *shape: int) -> Array:
        return self.random.standard_normal(shape).astype(np.float32)

    def size(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def sizes(self, count: int, low: int, high: int) -> list[int]:
        return [self.size(low, high) for _ in range(count)]

    def choice(self, *options: Any) -> Any:
        return options[self.size(0, len(options) - 1)]

    def input(self, array: Array) -> str:
        self.feeds["x"] = array
        return "x"

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def operand(self, array: Array) -> str:
        """A constant, or an operand computed at run time."""
        if self.choice(True, False):
            return self.constant(array)
        name = f"i{len(self.feeds)}"
        self.feeds[name] = array
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{op}{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op}{len(self.nodes)}", **attributes))
        return names[0]


def windows(draw: Drawn, spatial: int) -> dict[str, Any]:
    """Strides, dilations and pads that leave at least one window on axes of size 7 or more."""
    kernel = draw.sizes(spatial, 1, 3)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": draw.sizes(spatial, 1, 3)}
    if draw.choice(True, False):
        attributes["dilations"] = draw.sizes(spatial, 1, 2)
    how = draw.choice("none", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")
    if how == "pads":
        attributes["pads"] = [min(draw.size(0, 2), k - 1) for k in kernel * 2]
    elif how != "none":
        attributes["auto_pad"] = how
    return attributes


def conv(draw: Drawn) -> None:
    spatial = draw.choice(1, 2, 2, 2, 3)
    groups = draw.choice(1, 1, 2, 4) if spatial < 3 else 1
    inner, outer = groups * draw.size(1, 2), groups * draw.size(1, 3)
    attributes = windows(draw, spatial)
    x = draw.input(draw.floats(draw.size(1, 2), inner, *draw.sizes(spatial, 7, 9)))
    weights = draw.constant(draw.floats(outer, inner // groups, *attributes["kernel_shape"]))
    bias = [draw.constant(draw.floats(outer))] if draw.choice(True, False) else []
    y = draw.node("Conv", x, weights, *bias, group=groups, **attributes)
    if draw.choice(True, False):
        draw.node("Relu", y)


def conv_transpose(draw: Drawn) -> None:
    spatial = draw.choice(1, 2, 2, 3)
    groups = draw.choice(1, 1, 2)
    inner, outer = groups * draw.size(1, 2), draw.size(1, 2)
    kernel, strides = draw.sizes(spatial, 1, 3), draw.sizes(spatial, 1, 3)
    attributes: dict[str, Any] = {"strides": strides, "kernel_shape": kernel}
    if draw.choice(True, False):
        attributes["dilations"] = draw.sizes(spatial, 1, 2)
    how = draw.choice("none", "pads", "pads", "SAME_UPPER", "SAME_LOWER")
    if how == "pads":
        attributes["pads"] = [draw.size(0, k - 1) for k in kernel * 2]
    elif how != "none":
        attributes["auto_pad"] = how
    if draw.choice(True, False):
        attributes["output_padding"] = [draw.size(0, s - 1) for s in strides]
    x = draw.input(draw.floats(draw.size(1, 2), inner, *draw.sizes(spatial, 3, 5)))
    weights = draw.constant(draw.floats(inner, outer, *kernel))
    bias = [draw.constant(draw.floats(outer * groups))] if draw.choice(True, False) else []
    draw.node("ConvTranspose", x, weights, *bias, group=groups, **attributes)


def pool(draw: Drawn) -> None:
    spatial = draw.choice(1, 2, 2, 2, 3)
    op = draw.choice("MaxPool", "AveragePool", "AveragePool", "LpPool")
    attributes = windows(draw, spatial)
    if "auto_pad" not in attributes:
        attributes["ceil_mode"] = draw.size(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = draw.size(0, 1)
    draw.node(op, draw.input(draw.floats(2, 3, *draw.sizes(spatial, 7, 9))), **attributes)


def pad(draw: Drawn) -> None:
    rank = draw.size(1, 4)
    shape = draw.sizes(rank, 2, 4)
    mode = draw.choice("constant", "reflect", "edge", "wrap")
    low = draw.choice(0, -1) if mode == "constant" else 0
    amounts = np.array([draw.size(low, min(shape) - 1) for _ in range(2 * rank)], np.int64)
    dtype = draw.choice(np.float32, np.int32, np.int64, np.uint8, bool)
    x = draw.input((draw.floats(*shape) * 9).astype(dtype))
    fill = [draw.constant(np.array(1, dtype))] if mode == "constant" and draw.choice(True, False) else []
    draw.node("Pad", x, draw.constant(amounts), *fill, mode=mode)


def slice_(draw: Drawn) -> None:
    rank = draw.size(1, 4)
    shape = draw.sizes(rank, 3, 6)
    axes = sorted(draw.random.permutation(rank)[: draw.size(1, rank)].tolist())
    steps = [draw.choice(1, 1, 2, 3, -1, -2) for _ in axes]
    starts, ends = ([draw.size(-8, 8) for _ in axes] for _ in range(2))
    far = 2**63 - 1
    ends = [draw.choice(end, far, far if step > 0 else -far) for end, step in zip(ends, steps, strict=True)]
    x = draw.input(draw.floats(*shape))
    bounds = [draw.constant(np.array(values, np.int64)) for values in (starts, ends, axes, steps)]
    draw.node("Slice", x, *bounds)


def resize(draw: Drawn) -> None:
    shape = [1, 2, *draw.sizes(2, 2, 6)]
    mode = draw.choice("nearest", "linear", "linear", "cubic")
    coordinates = draw.choice("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = draw.choice("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        attributes["exclude_outside"] = draw.size(0, 1)
    x = draw.input(draw.floats(*shape))
    if draw.choice(True, False):
        factors = [1.0, 1.0, *(draw.choice(0.5, 0.6, 1.0, 1.5, 2.0, 3.0) for _ in range(2))]
        draw.node("Resize", x, "", draw.constant(np.array(factors, np.float32)), **attributes)
    else:
        wanted = np.array([*shape[:2], *draw.sizes(2, 1, 9)], np.int64)
        draw.node("Resize", x, "", "", draw.constant(wanted), **attributes)


def reduction(draw: Drawn) -> None:
    rank = draw.size(1, 5)
    op = draw.choice(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare".split()
    )
    axes = draw.random.permutation(rank)[: draw.size(0, rank)].astype(np.int64) - draw.choice(0, rank)
    x = draw.input(draw.floats(*draw.sizes(rank, 1, 4)))
    operand = [draw.constant(axes)] if len(axes) or draw.choice(True, False) else []
    draw.node(draw.choice(*op), x, *operand, keepdims=draw.size(0, 1))


def broadcasting(draw: Drawn) -> None:
    rank = draw.size(0, 6)
    shape = draw.sizes(rank, 1, 3)
    dtype = draw.choice(np.float32, np.float32, np.float16, np.int32, np.int64, np.int8, np.uint8)

    def operand() -> Array:
        thinned = [draw.choice(size, size, 1) for size in shape][draw.size(0, rank) :]
        return (draw.floats(*thinned) * 5).astype(dtype)

    ops = "Add Sub Mul Max Min Less Greater Equal Div Mod"
    op = draw.choice(*ops.split())
    x, other = draw.input(operand()), operand()
    if op in ("Div", "Mod"):
        other = np.where(other == 0, np.ones((), dtype), other)
    if op == "Mod" and np.dtype(dtype).kind == "f":
        draw.node(op, x, draw.constant(other), fmod=1)
    else:
        draw.node(op, x, draw.constant(other))


def whole_numbers(draw: Drawn) -> None:
    """Integer ops made of several, over operands that broadcast."""
    op = draw.choice("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Div", "Mod", "Max", "Less", "Pow")
    widths = (
        ("uint8", "uint32", "uint64") if op == "BitShift" else ("int8", "uint16", "int32", "int64", "uint64")
    )
    dtype = np.dtype(draw.choice("int32", "int64") if op == "Pow" else draw.choice(*widths))
    shape = draw.sizes(draw.size(1, 5), 1, 3)

    def operand(largest: int) -> Array:
        thinned = [draw.choice(size, size, 1) for size in shape][draw.size(0, len(shape) - 1) :]
        return draw.random.integers(0, largest, thinned).astype(dtype)

    x = draw.input(operand(min(np.iinfo(dtype).max, 2**62)) if op != "Pow" else operand(9))
    other = operand({"BitShift": dtype.itemsize * 8, "Pow": 9}.get(op, 100)) + (op in ("Div", "Mod"))
    attributes = {"direction": draw.choice("LEFT", "RIGHT")} if op == "BitShift" else {}
    draw.node(op, x, draw.constant(other.astype(dtype)), **attributes)


def einsum(draw: Drawn) -> None:
    equation = draw.choice(
        *"ij,jk->ik bij,bjk->bik bhqd,bhkd->bhqk bqhd,bkhd->bhqk bhqk,bkhd->bqhd bqd,dhe->bqhe bqhe,hed->bqd".split(),
        *"i,i-> i,j->ij ij,ij->ij ij->ji ijk->j ij,kj bij,k->bi ...ij,...jk->...ik b...d,dk->b...k ij->".split(),
        *"...ii->...i ii-> iji->j iij,jk->ik iii->i".split(),
    )
    letters = {letter: draw.size(1, 4) for letter in "bcdehijkqxy"}
    operands = [
        draw.floats(*(letters[letter] for letter in term.replace("...", "xy")))
        for term in equation.partition("->")[0].split(",")
    ]
    names = [draw.input(operands[0]), *(draw.constant(operand) for operand in operands[1:])]
    draw.node("Einsum", *names, equation=equation)


def layouts(draw: Drawn) -> None:
    """A chain in which channels-last tensors meet ops that rearrange, cut and join axes."""
    channels, height, width = 4, draw.choice(4, 6), draw.choice(2, 6)
    x = draw.input(draw.floats(2, channels, height, width))
    y = draw.node("Conv", x, draw.constant(draw.floats(channels, channels, 1, 1)))
    for _ in range(draw.size(1, 4)):
        y = _rearrange(draw, y, (2, channels, height, width))


def _rearrange(draw: Drawn, y: str, shape: tuple[int, ...]) -> str:
    """A random step that takes [N, C, H, W] to the same shape."""
    n, c, h, w = shape
    kind = draw.choice(
        "shuffle", "transpose", "flatten", "join", "reduce", "matmul", "softmax", "gather", "norm"
    )
    integers = lambda *values: draw.constant(np.array(values, np.int64))  # noqa: E731 - one line, local
    if kind == "shuffle":
        y = draw.node("Reshape", y, integers(n, 2, c // 2, h, w))
        y = draw.node("Transpose", y, perm=draw.choice([0, 2, 1, 3, 4], [0, 1, 2, 4, 3], [0, 3, 1, 2, 4]))
        return draw.node("Reshape", y, integers(*shape))
    if kind == "transpose":
        perm = draw.random.permutation(4).tolist()
        y = draw.node("Sigmoid", draw.node("Transpose", y, perm=perm))
        return draw.node("Transpose", y, perm=np.argsort(perm).tolist())
    if kind == "flatten":
        y = draw.node("Flatten", y, axis=1)
        y = draw.node("Gemm", y, draw.constant(draw.floats(c * h * w, c * h * w) / (c * h * w)))
        return draw.node("Reshape", y, integers(*shape))
    if kind == "join":
        cut = draw.choice(1, 2, 3)
        size = shape[cut] // 2
        draw.node("Split", y, integers(size, shape[cut] - size), outputs=2, axis=cut)
        first, second = draw.nodes[-1].output
        return draw.node("Concat", second, draw.node("Relu", first), axis=cut)
    if kind == "reduce":
        axes = draw.random.permutation(4)[: draw.size(1, 3)].tolist()
        return draw.node("Add", y, draw.node("ReduceMean", y, integers(*axes)))
    if kind == "matmul":
        return draw.node("MatMul", y, draw.constant(draw.floats(w, w)))
    if kind == "softmax":
        return draw.node("Softmax", y, axis=draw.size(-4, 3))
    if kind == "gather":
        axis = draw.size(1, 3)
        return draw.node("Gather", y, draw.constant(draw.random.integers(-1, 2, shape[axis])), axis=axis)
    scale, bias = (draw.constant(draw.floats(w)) for _ in range(2))
    return draw.node("LayerNormalization", y, scale, bias)


FAMILIES: dict[str, Callable[[Drawn], None]] = {
    "broadcasting": broadcasting,
    "conv": conv,
    "conv_transpose": conv_transpose,
    "einsum": einsum,
    "layouts": layouts,
    "pad": pad,
    "pool": pool,
    "reduction": reduction,
    "resize": resize,
    "slice": slice_,
    "whole_numbers": whole_numbers,
}


# Families whose other operands fit an input of other sizes; those keep their channels.
OPEN = {"conv": 1, "conv_transpose": 1, "pad": None, "pool": 1, "reduction": None, "resize": 1, "slice": None}


@pytest.mark.parametrize("family", FAMILIES)
def test_random_nodes_compute_what_onnx_runtime_does(conformance: Conformance, family: str) -> None:
    faults = [fault for seed in range(SEEDS) if (fault := check(conformance, family, seed))]
    assert not faults


@pytest.mark.parametrize("family", ["conv", "layouts", "pool"])
def test_random_nodes_take_and_give_images_channels_last(conformance: Conformance, family: str) -> None:
    faults = [fault for seed in range(SEEDS) if (fault := check(conformance, family, seed, layout="nhwc"))]
    assert not faults


@pytest.mark.parametrize("family", OPEN)
def test_random_nodes_of_open_sizes_do_too(conformance: Conformance, family: str) -> None:
    faults = [fault for seed in range(SEEDS) if (fault := check(conformance, family, seed, is_open=True))]
    assert not faults


def check(
    conformance: Harness,
    family: str,
    seed: int,
    *,
    is_open: bool = False,
    layout: Layout = "keep",
    families: Mapping[str, Callable[[Drawn], None]] = FAMILIES,
    kept_axes: Mapping[str, int | None] = OPEN,
    holds_nothing: bool = True,
) -> str:
    """Return how the drawn model's answers differ from ONNX Runtime's; empty if not, or if one of us takes no such.

    With open sizes one artefact answers for the drawn input and for a larger one.

    Args:
        holds_nothing: whether the target has tensors without elements.
    """
    draw = Drawn(np.random.default_rng(seed))
    families[family](draw)
    initializers = [numpy_helper.from_array(array, name) for name, array in draw.constants.items()]
    x = draw.feeds["x"]
    feeds, open_dims = [draw.feeds], {}
    if is_open:
        open_dims = {
            "x": [size if axis == kept_axes[family] else f"d{axis}" for axis, size in enumerate(x.shape)]
        }
        larger = [
            size if axis == kept_axes[family] else size + draw.size(1, 3) for axis, size in enumerate(x.shape)
        ]
        feeds.append({**draw.feeds, "x": np.resize(np.flip(x), larger)})
    model = model_of(draw.nodes, draw.feeds, initializers, open_dims=open_dims)
    try:
        expected = [run_onnx(model, feed) for feed in feeds]
    except Exception:
        return ""  # ONNX Runtime does not take every combination either
    if not holds_nothing and any(not value.size for answer in expected for value in answer.values()):
        return ""
    what = f"{family} {seed}: {[helper.printable_node(node) for node in draw.nodes]}"
    try:
        kept = layout == "keep"  # which is all that Core ML has
        answers = conformance.convert_and_run(model, feeds, *([] if kept else [layout]))
    except CannotConvertError:
        return ""
    except Exception as error:
        return f"{what}: {error}"
    found = [
        difference(value, answer[name], atol=1e-5)
        for wanted, answer in zip(expected, answers, strict=True)
        for name, value in wanted.items()
    ]
    return "".join(f"{what}: {fault}" for fault in found if fault)
