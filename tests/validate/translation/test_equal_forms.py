"""Two ways to write one computation are proven equal, and a small change in the second one is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from onnxport.formats.model import Model
from onnxport.validate.translation.proof import prove
from tests.validate.models import parsed

Array = np.ndarray[Any, np.dtype[Any]]
_DRAW = np.random.default_rng(0)
_WEIGHT = _DRAW.standard_normal((6, 4, 3, 3)).astype(np.float32)
_FACTOR = np.array([0.5, 1, 30, 1000], np.float32).reshape(4, 1, 1)
_ENDS = "g (float[1, 4, 8, 8] x) => (float[1, C, H, W] y)"


def model(body: str, opset: int = 17, **constants: Any) -> Model:
    proto = parsed(f"{_ENDS} {{ {body} }}", opset)
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()
    )
    return Model(ir.from_proto(proto))


def faults(source: Model, artefact: Model) -> list[str]:
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    return [str(each) for each in prove(source, artefact, [feeds]).findings]


def scaled(weight: Array = _WEIGHT / _FACTOR, factor: Array = _FACTOR) -> Model:
    body = "a = Add (x, x) k = Mul (a, factor) r = Relu (k) y = Conv <pads = [1, 1, 1, 1]> (r, w)"
    return model(body, factor=factor, w=weight.astype(np.float32))


def shifted(factor: Any = 1.0, more: float = 0.0) -> Model:
    """What a convolution pads is no number of its own, so no shift may be left for its bias."""
    body = "p = MaxPool <kernel_shape = [2, 2]> (x) k = Mul (p, s) n = Add (k, t) y = Conv <pads = [1, 1, 1, 1]> (n, w)"
    slope, shift = np.random.default_rng(2).uniform(0.5, 2, (2, 4, 1, 1)).astype(np.float32)
    constants = {"s": slope * factor, "t": shift * factor + more, "w": _WEIGHT / factor}
    return model(body, **{name: each.astype(np.float32) for name, each in constants.items()})


BEFORE_A_RELU = model("a = Add (x, x) r = Relu (a) y = Conv <pads = [1, 1, 1, 1]> (r, w)", w=_WEIGHT)
ZEROS = np.zeros((1, 2, 8, 8), np.float32)
CONCATENATED = model("y = Concat <axis = 1> (x, z)", z=ZEROS)
# A product of all elements, in the order of ONNX and with channels last.
_TALL = _DRAW.standard_normal((256, 3)).astype(np.float32)
_LAST_FIRST = _TALL.reshape(8, 8, 4, 3).transpose(2, 0, 1, 3).reshape(256, 3)


def flattened(body: str, weight: Array) -> Model:
    constants = {
        "s": np.array([1, 256]),
        "o": np.array([1, 3, 1, 1]),
        "w": weight,
        "b": np.ones(3, np.float32),
    }
    return model(f"{body} y = Reshape (p, o)", **constants)


CHANNELS_LAST = flattened(
    "a = Sigmoid (x) t = Transpose <perm = [0, 2, 3, 1]> (a) f = Reshape (t, s) m = MatMul (f, w) p = Add (m, b)",
    _TALL,
)
_AS_GEMM = "a = Sigmoid (x) f = Reshape (a, s) p = Gemm <transB = 1> (f, w, b)"


def halved(first: float = 1.0, second: float = 1.0, *, factors: bool = True) -> Model:
    """Two products, a Relu between them, and a half before each."""
    inner, outer = (
        ("k = Mul (f, h)", "q = Mul (r, h)") if factors else ("k = Identity (f)", "q = Identity (r)")
    )
    body = f"a = Sigmoid (x) f = Reshape (a, s) {inner} p = Gemm (k, w, b) r = Relu (p) {outer} z = Gemm (q, v, b)"
    draw = np.random.default_rng(4).standard_normal((3, 3)).astype(np.float32)
    constants = {"s": np.array([1, 256]), "o": np.array([1, 3, 1, 1]), "h": np.float32(0.5)}
    weights = {"w": _TALL * np.float32(first), "v": draw * np.float32(second), "b": np.ones(3, np.float32)}
    return model(f"{body} y = Reshape (z, o)", **constants, **weights)


# Of the pixels' mean, the middle tap alone meets a number.
_OF_ONE = "m = GlobalAveragePool (x) y = Conv <pads = PADS> (m, w)"
OF_ONE = model(_OF_ONE.replace("PADS", "[1, 1, 1, 1]"), w=_WEIGHT)


def of_one_tap(row: int = 1) -> Model:
    return model(_OF_ONE.replace("PADS", "[0, 0, 0, 0]"), w=_WEIGHT[:, :, row : row + 1, 1:2])


def turned(order: str, *, pads_first: bool) -> Model:
    """A convolution of pictures whose rows are columns, padded as that or as another layout pads."""
    if not pads_first:
        body = f"t = Transpose <perm = {order}> (x) y = Conv <pads = [1, 2, 1, 2]> (t, w)"
        return model(body, w=_WEIGHT)
    body = f"p = Pad (x, n) t = Transpose <perm = {order}> (p) y = Conv (t, w)"
    return model(body, w=_WEIGHT, n=np.array([0, 0, 2, 1, 0, 0, 2, 1]))


OLD_SLICE = model("y = Slice <starts = [1, 2], ends = [3, 9], axes = [1, 3]> (x)", opset=9)


def sliced(starts: tuple[int, int] = (1, 2)) -> Model:
    given: Mapping[str, Any] = {"a": np.array(starts), "b": np.array([3, 8]), "c": np.array([1, 3])}
    return model("y = Slice (x, a, b, c)", **given)


def padded(behind: int = 2) -> Model:
    return model("y = Pad (x, p)", p=np.array([0, 0, 0, 0, 0, behind, 0, 0]))


def of_integers(op: str) -> Model:
    """The largest of integers stands for the largest of their floats, as ONNX Runtime's optimizer has it."""
    body = f"q = QuantizeLinear (p, s, z) r = {op} <axes = [2, 3]> (q) m = DequantizeLinear (r, s, z)"
    return _with_product(body, s=np.float32(0.05), z=np.uint8(128))


def _with_product(body: str, **constants: Any) -> Model:
    weight = np.random.default_rng(3).standard_normal((4, 6, 1, 1)).astype(np.float32)
    return model(f"p = Relu (x) {body} y = Conv (m, w)", w=weight.transpose(1, 0, 2, 3).copy(), **constants)


MEAN = model("y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)")
UP = "kernel_shape = [3, 3], strides = [2, 2]"
_SIDE = np.array([1.5, 1, 1, 1], np.float32)  # three elements by the two that are no padding


def mean_times(factor: Array) -> Model:
    """Of zeros around the data, and times what they make too small."""
    body = f"p = Pad (x, n) a = AveragePool <{UP}> (p) y = Mul (a, f)"
    return model(body, n=np.array([0, 0, 1, 1, 0, 0, 1, 1]), f=factor.astype(np.float32)[None, None])


def shuffled(order: str, *, is_last: bool = False) -> Model:
    """The channels of two groups by turns, with the channels first or last."""
    if is_last:
        body = (
            f"l = Transpose <perm = [0, 2, 3, 1]> (x) a = Reshape (l, s) b = Transpose <perm = {order}> (a) "
        )
        body += "c = Reshape (b, t) r = Transpose <perm = [0, 3, 1, 2]> (c)"
        sizes = [1, 8, 8, 2, 2], [1, 8, 8, 4]
    else:
        body = f"a = Reshape (x, s) b = Transpose <perm = {order}> (a) r = Reshape (b, t)"
        sizes = [1, 2, 2, 8, 8], [1, 4, 8, 8]
    shapes = {"s": np.array(sizes[0]), "t": np.array(sizes[1])}
    return model(f"{body} y = Conv <pads = [1, 1, 1, 1]> (r, w)", w=_WEIGHT, **shapes)


def weighed(factors: str) -> Model:
    """Columns or rows times the means of the rows."""
    body = f"r = Reshape (x, square) m = ReduceMean <axes = [1]> (r) {factors} t = Mul (r, f) q = Reshape (t, sizes) "
    body += "y = Conv <pads = [1, 1, 1, 1]> (q, w)"
    sizes = {"square": [16, 16], "row": [1, 16], "column": [16, 1], "sizes": [1, 4, 8, 8]}
    return model(body, w=_WEIGHT, **{name: np.array(each) for name, each in sizes.items()})


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        (
            weighed("f = Transpose <perm = [1, 0]> (m)"),
            weighed("f = Reshape (m, row)"),
            weighed("f = Relu (m)"),
        ),
        (
            weighed("f = Transpose <perm = [1, 0]> (m)"),
            weighed("f = Reshape (m, row)"),
            weighed("a = Transpose <perm = [1, 0]> (m) f = Reshape (a, column)"),
        ),
        (MEAN, mean_times(np.outer(_SIDE, _SIDE)), mean_times(np.ones((4, 4)))),
        (
            model(f"y = MaxPool <{UP}, ceil_mode = 1> (x)"),
            model(f"y = MaxPool <{UP}, pads = [0, 0, 1, 1]> (x)"),
            model(f"y = MaxPool <{UP}, pads = [1, 1, 0, 0]> (x)"),
        ),
        (
            shuffled("[0, 2, 1, 3, 4]"),
            shuffled("[0, 1, 2, 4, 3]", is_last=True),
            shuffled("[0, 1, 2, 3, 4]", is_last=True),
        ),
        (BEFORE_A_RELU, scaled(), scaled(_WEIGHT)),
        (BEFORE_A_RELU, scaled(), scaled(-_WEIGHT / _FACTOR, -_FACTOR)),
        (shifted(), shifted(_FACTOR / 3), shifted(_FACTOR / 3, more=0.1)),
        (CONCATENATED, padded(), padded(3)),
        (CONCATENATED, padded(), model("y = Concat <axis = 1> (x, z)", z=ZEROS + 1)),
        (OLD_SLICE, sliced(), sliced((0, 2))),
        (
            CHANNELS_LAST,
            flattened(_AS_GEMM, np.ascontiguousarray(_LAST_FIRST.T)),
            flattened(_AS_GEMM, np.ascontiguousarray(_TALL.T)),
        ),
        (
            turned("[0, 1, 3, 2]", pads_first=False),
            turned("[0, 1, 3, 2]", pads_first=True),
            turned("[0, 1, 2, 3]", pads_first=True),
        ),
        (OF_ONE, of_one_tap(), of_one_tap(0)),
        (halved(), halved(0.5, 0.5, factors=False), halved(0.5, factors=False)),
        (
            model("a = Concat <axis = 1> (x, z) y = Concat <axis = 1> (a, x)", z=ZEROS + 1),
            model("y = Concat <axis = 1> (x, z, x)", z=ZEROS + 1),
            model("y = Concat <axis = 1> (x, x, z)", z=ZEROS + 1),
        ),
        (
            _with_product("m = ReduceMax <axes = [2, 3]> (p)"),
            of_integers("ReduceMax"),
            of_integers("ReduceMin"),
        ),
    ],
    ids=[
        "means of rows by columns",
        "means of rows by rows",
        "a mean without its padding",
        "windows beyond the data",
        "a shuffle of channels that are last",
        "factors before a relu",
        "negative factors",
        "factors before a padded product",
        "zeros as a pad",
        "ones are no pad",
        "an older slice",
        "a product of channels that are last",
        "padding before a turn",
        "a convolution of one pixel",
        "factors of two products",
        "a list in a list",
        "the largest of integers",
    ],
)
def test_both_are_one(source: Model, right: Model, wrong: Model) -> None:
    assert faults(source, right) == []
    assert faults(source, wrong)
