"""Networks over one axis, as targets write them over two, are proven equal, and a small change in them is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxport.formats.model import Model
from tests.validate.translation.test_equal_forms import faults, model

_DRAW = np.random.default_rng(5)
_TAPS = _DRAW.standard_normal((4, 6, 5)).astype(np.float32)
_FILTER = _DRAW.standard_normal((4, 4, 5)).astype(np.float32)
_FIRST = [1, 4, 64]
_NORM = {name: _DRAW.uniform(0.5, 2, 4).astype(np.float32) for name in "sbmv"}


def line(body: str, out: tuple[int, int], shape: list[int] = _FIRST, **constants: Any) -> Model:
    """A network from `r`, of these sizes, to `q`."""
    sizes = {"n": np.array(shape), "o": np.array([1, out[0], 1, out[1]])}
    return model(f"a = Add (x, x) r = Reshape (a, n) {body} y = Reshape (q, o)", **sizes, **constants)


def wide(body: str, out: tuple[int, int], **constants: Any) -> Model:
    return line(body, out, [1, 4, 1, 64], **constants)


def _pool(kind: str, pads: str, *, narrow: bool = False) -> Model:
    if narrow:
        return line(f"q = {kind} <kernel_shape = [3], strides = [2], pads = {pads}> (r)", (4, 32))
    return wide(f"q = {kind} <kernel_shape = [1, 3], strides = [1, 2], pads = {pads}> (r)", (4, 32))


def _transposed(taps: np.ndarray[Any, Any], *, narrow: bool = False) -> Model:
    if narrow:
        body = "q = ConvTranspose <strides = [2], pads = [2, 2], output_padding = [1]> (r, w)"
        return line(body, (6, 128), w=taps)
    body = "q = ConvTranspose <strides = [1, 2], pads = [0, 2, 0, 2], output_padding = [0, 1]> (r, w)"
    return wide(body, (6, 128), w=taps[:, :, None])


_NORMALIZED = "z = Conv (r, w) c = Sigmoid (z) q = BatchNormalization (c, s, b, m, v)"
_HALF = {"h": np.float32(0.5)}
_SIZES = {"end": np.array([1]), "last": np.array([2]), "k": _DRAW.standard_normal((4, 1)).astype(np.float32)}
_SCORES = (
    "t = Transpose <perm = [0, 2, 1]> (r) z = MatMul (t, k) d = Squeeze (z, last) p = Softmax <axis = 1> (d)"
)
_WEIGHED = f"{_SCORES} u = Unsqueeze (p, end) m = Mul (u, r)"

CASES = {
    "the largest of a window": (
        _pool("MaxPool", "[1, 1]", narrow=True),
        _pool("MaxPool", "[0, 1, 0, 1]"),
        _pool("MaxPool", "[0, 0, 0, 2]"),
    ),
    "the mean of a window": (
        _pool("AveragePool", "[1, 1]", narrow=True),
        _pool("AveragePool", "[0, 1, 0, 1]"),
        _pool("AveragePool", "[0, 0, 0, 2]"),
    ),
    "a transposed convolution": (
        _transposed(_TAPS, narrow=True),
        _transposed(_TAPS),
        _transposed(_TAPS[:, :, ::-1].copy()),
    ),
    "a norm": (
        line(_NORMALIZED, (4, 60), w=_FILTER, **_NORM),
        wide(_NORMALIZED, (4, 60), w=_FILTER[:, :, None], **_NORM),
        wide(_NORMALIZED, (4, 60), w=_FILTER[:, :, None], **{**_NORM, "m": _NORM["m"][::-1].copy()}),
    ),
    "a mean over all": (
        line("q = ReduceMean <axes = [2]> (r)", (4, 1)),
        wide("q = ReduceMean <axes = [3]> (r)", (4, 1)),
        wide("q = ReduceMax <axes = [3]> (r)", (4, 1)),
    ),
    "a factor in a product of products": (
        line("s = Sigmoid (r) b = Mul (r, s) c = Mul (b, h) t = Tanh (r) q = Mul (c, t)", (4, 64), **_HALF),
        line("s = Sigmoid (r) b = Mul (s, h) c = Mul (r, b) t = Tanh (r) q = Mul (c, t)", (4, 64), **_HALF),
        line("s = Sigmoid (r) b = Mul (r, s) t = Tanh (r) q = Mul (b, t)", (4, 64)),
    ),
    "a list with nothing": (
        line("q = Concat <axis = 2> (r, e)", (4, 64), e=np.zeros((1, 4, 0), np.float32)),
        line("q = Identity (r)", (4, 64)),
        line("q = Neg (r)", (4, 64)),
    ),
    "weights of places": (
        line(f"{_SCORES} u = Unsqueeze (p, last) m = Mul (u, t) q = ReduceSum (m, end)", (4, 1), **_SIZES),
        line(f"{_WEIGHED} q = ReduceSum (m, last)", (4, 1), **_SIZES),
        line(f"{_WEIGHED} q = ReduceMax <axes = [2]> (m)", (4, 1), **_SIZES),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_both_are_one(name: str) -> None:
    source, right, wrong = CASES[name]
    assert faults(source, right) == []
    assert faults(source, wrong)
