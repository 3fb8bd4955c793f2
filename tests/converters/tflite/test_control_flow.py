"""If, Loop and Scan at run time, inside each other and around what a real model has in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx.parser
import onnx_ir
import pytest

from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.models import run_onnx

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A graph in ONNX's text form and the inputs that it is run on, one artefact for all of them."""

    graph: str
    feeds: Sequence[Mapping[str, Array]]


def flags(*names: str) -> list[dict[str, Array]]:
    """X, with every combination of these booleans."""
    feeds: list[dict[str, Array]] = [{"x": X}]
    for name in names:
        feeds = [{**feed, name: np.array(flag)} for feed in feeds for flag in (True, False)]
    return feeds


def counts(*numbers: int, **others: int) -> list[dict[str, Array]]:
    """X, with each of these trip counts."""
    fixed = {name: np.array(number, np.int64) for name, number in others.items()}
    return [{"x": X, "n": np.array(number, np.int64), **fixed} for number in numbers]


CASES = {
    "a branch reads what is around it, in two floors": Case(
        """g (bool p, bool q, float[2,3] x) => (float[2,3] y, float[2,3] z) {
            t = Neg(x)
            y, z = If (p) <
                then_branch = a () => (float[2,3] r, float[2,3] s) {
                    u = Exp(x)
                    r = If (q) <
                        then_branch = b () => (float[2,3] r2) { r2 = Add(t, u) },
                        else_branch = c () => (float[2,3] r3) { v = Mul(t, x)  r3 = Sub(v, u) }
                    >
                    s = Identity(t)
                },
                else_branch = d () => (float[2,3] r, float[2,3] s) { r = Mul(t, t)  s = Abs(x) }
            >
        }""",
        flags("p", "q"),
    ),
    "branches of other sizes": Case(
        """g (bool p, float[2,3] x) => (float[A,3] y, int64[2] z) {
            y = If (p) <
                then_branch = a () => (float[A,3] r) { r = Concat<axis=0>(x, x) },
                else_branch = d () => (float[A,3] r) { r = Neg(x) }
            >
            z = Shape(y)
        }""",
        flags("p"),
    ),
    "branches that give constants": Case(
        """g (bool p, float[2,3] x) => (float[2,3] y) <float c = {3.0}> {
            k = If (p) <
                then_branch = a () => (float r) { r = Constant<value=float {2.0}>() },
                else_branch = d () => (float r) { r = Identity(c) }
            >
            y = Mul(x, k)
        }""",
        flags("p"),
    ),
    "branches of images": Case(
        """g (bool p, float[1,4,8,8] x) => (float[1,4,6,6] y) {
            t = Relu(x)
            v = If (p) <
                then_branch = a () => (float[1,4,6,6] r) { r = MaxPool<kernel_shape=[3,3]>(t) },
                else_branch = d () => (float[1,4,6,6] r) { u = Add(t, x)  r = AveragePool<kernel_shape=[3,3]>(u) }
            >
            y = MaxPool<kernel_shape=[1,1]>(v)
        }""",
        [
            {"p": np.array(flag), "x": RANDOM.standard_normal((1, 4, 8, 8)).astype(np.float32)}
            for flag in (True, False)
        ],
    ),
    "a branch in a loop": Case(
        """g (int64 n, float[2,3] x) => (float[2,3] y, float[N,2,3] z) <int64 two = {2}, int64 zero = {0}> {
            y, z = Loop (n, , x) <
                body = l (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2, float[2,3] z1) {
                    c2 = Identity(c)
                    m = Mod(i, two)
                    e = Equal(m, zero)
                    s2 = If (e) <
                        then_branch = a () => (float[2,3] r) { r = Add(s, x) },
                        else_branch = d () => (float[2,3] r) { r = Mul(s, x) }
                    >
                    z1 = Neg(s2)
                }
            >
        }""",
        counts(3, 0, 1, 4),
    ),
    "a loop in a branch": Case(
        """g (bool p, int64 n, float[2,3] x) => (float[2,3] y) {
            t = Exp(x)
            y = If (p) <
                then_branch = a () => (float[2,3] r) {
                    r = Loop (n, , x) <
                        body = l (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2) {
                            c2 = Identity(c)
                            s2 = Add(s, t)
                        }
                    >
                },
                else_branch = d () => (float[2,3] r) { r = Mul(t, x) }
            >
        }""",
        [{**feed, "p": np.array(flag)} for feed in counts(3, 0) for flag in (True, False)],
    ),
    "a loop in a loop": Case(
        """g (int64 n, int64 m, float[2,3] x) => (float[2,3] y, float[N,K,2,3] z) {
            t = Exp(x)
            y, z = Loop (n, , x) <
                body = l (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2, float[K,2,3] zz) {
                    c2 = Identity(c)
                    s2, zz = Loop (m, , s) <
                        body = k (int64 j, bool d, float[2,3] w) => (bool d2, float[2,3] w2, float[2,3] q) {
                            d2 = Identity(d)
                            w2 = Add(w, t)
                            q = Mul(w2, s)
                        }
                    >
                }
            >
        }""",
        [*counts(3, 1, m=2), *counts(2, m=1)],
    ),
    "a loop that ends itself": Case(
        """g (float[3] x, bool go) => (float[3] y, float[N,3] z, int64[N] w)
            <float most = {20.0}, float one = {1.0}> {
            y, z, w = Loop ( , go, x) <
                body = l (int64 i, bool c, float[3] s) => (bool c2, float[3] s2, float[3] z1, int64 w1) {
                    s2 = Add(s, one)
                    z1 = Identity(s)
                    w1 = Identity(i)
                    t = ReduceSum<keepdims=0>(s2)
                    c2 = Less(t, most)
                }
            >
        }""",
        [
            {"x": np.full(3, start, np.float32), "go": np.array(go)}
            for start, go in ((0, True), (9, True), (9, False))
        ],
    ),
    "states that grow, one from nothing": Case(
        """g (int64 n, float[K,3] x) => (float[P,3] y, float[Q,3] z) <float[0,3] e = {}> {
            y, z = Loop (n, , x, e) <
                body = l (int64 i, bool c, s, f) => (bool c2, float[A,3] s2, float[B,3] f2) {
                    c2 = Identity(c)
                    s2 = Concat<axis=0>(s, x)
                    f2 = Concat<axis=0>(f, s)
                }
            >
        }""",
        counts(3, 1, 2),
    ),
    "rows of open size": Case(
        """g (int64 n, float[K,3] x) => (float[K,3] y, float[N,K,3] z, uint8[N,K] u) {
            y, z, u = Loop (n, , x) <
                body = l (int64 i, bool c, s) => (bool c2, float[K,3] s2, float[K,3] z1, uint8[K] u1) {
                    c2 = Identity(c)
                    s2 = Add(s, x)
                    z1 = Neg(s2)
                    axes = Constant<value_ints=[1]>()
                    q = ReduceMax<keepdims=0>(s2, axes)
                    a = Abs(q)
                    u1 = Cast<to=2>(a)
                }
            >
        }""",
        counts(3, 1, 2),
    ),
    "rows of every type": Case(
        """g (int64 n, float[2,3] x) => (float[2,3] y, bool[N,2,3] a, uint8[N,2,3] b, int64[N] d, float16[N,2,3] e,
                                          uint32[N,2,3] f, int8[N,2,3] h) {
            y, a, b, d, e, f, h = Loop (n, , x) <
                body = l (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2, bool[2,3] a1, uint8[2,3] b1,
                                                             int64 d1, float16[2,3] e1, uint32[2,3] f1, int8[2,3] h1) {
                    c2 = Identity(c)
                    s2 = Add(s, x)
                    t = Abs(s2)
                    a1 = Greater(s2, x)
                    b1 = Cast<to=2>(t)
                    d1 = Identity(i)
                    e1 = Cast<to=10>(s2)
                    f1 = Cast<to=12>(t)
                    h1 = Cast<to=3>(s2)
                }
            >
        }""",
        counts(3, 1, 0),
    ),
    "two states that change places": Case(
        """g (int64 n, float[2,3] x, float[2,3] w) => (float[2,3] y, float[2,3] z, float v) <float zero = {0.0}> {
            y, z, v, u = Loop (n, , x, w, zero, zero) <
                body = l (int64 i, bool c, float[2,3] s, float[2,3] t, float p, float q)
                    => (bool c2, float[2,3] s2, float[2,3] t2, float p2, float q2) {
                    c2 = Identity(c)
                    s2 = Identity(t)
                    t2 = Identity(s)
                    p2 = Identity(q)
                    q2 = Exp(p)
                }
            >
        }""",
        [{**feed, "w": X * 2} for feed in counts(3, 2, 1, 0)],
    ),
    "one value as two results": Case(
        """g (bool p, int64 n, float[2,3] x)
            => (float[2,3] y, float[2,3] z, float[2,3] v, float[2,3] w, float[N,2,3] u) {
            y, z = If (p) <
                then_branch = a () => (float[2,3] r, float[2,3] s) { r = Neg(x)  s = Neg(x) },
                else_branch = d () => (float[2,3] r, float[2,3] s) { r = Identity(x)  s = Identity(x) }
            >
            v, w, u = Loop (n, , x, x) <
                body = l (int64 i, bool c, float[2,3] s, float[2,3] t)
                    => (bool c2, float[2,3] s2, float[2,3] t2, float[2,3] u1) {
                    c2 = Identity(c)
                    s2 = Exp(t)
                    t2 = Exp(t)
                    u1 = Identity(s2)
                }
            >
        }""",
        [{**feed, "p": np.array(flag)} for feed in counts(2, 0) for flag in (True, False)],
    ),
    "a known trip count": Case(
        """g (float[2,3] x) => (float[2,3] y, float[4,2,3] z) <int64 n = {4}> {
            y, z = Loop (n, , x) <
                body = l (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2, float[2,3] z1) {
                    c2 = Constant<value=bool {1}>()
                    f = Cast<to=1>(i)
                    s2 = Add(s, f)
                    z1 = Exp(s2)
                }
            >
        }""",
        [{"x": X}],
    ),
    "a state that any number starts and a step defines": Case(
        """g (float[N,3] x) => (float[N,3] y, float[N,3] last, float[R,N,3] z)
            <int64[1] n = {9}, float none = {0.0}, bool on = {1}> {
            y, last, z = Loop (n, on, x, none) <
                body = l (int64 i, bool c, float[N,3] s, t) => (bool c2, float[N,3] s2, t2, z1) {
                    half = Constant<value_float=0.5>()
                    s2 = Mul(s, half)
                    k = Cast<to=1>(i)
                    t2 = Sub(s2, k)
                    z1 = Neg(t2)
                    most = ReduceMax<keepdims=0>(s2)
                    c2 = Greater(most, half)
                }
            >
        }""",
        [{"x": X}, {"x": X * 30}, {"x": -X[:1]}, {"x": X * 1e4}],
    ),
    "a branch gives a flag, the other a vector of one": Case(
        """g (bool p, float[2,3] x) => (float[2,3] y) <float[1] none = {0.0}> {
            flag = If (p) <
                then_branch = a () => (r) { r = Constant<value=bool {1}>() },
                else_branch = d () => (r) {
                    three = Constant<value_ints=[3]>()  size = Constant<value_ints=[4]>()  r = Less(size, three)
                }
            >
            number = Cast<to=1>(flag)
            row = Add(number, none)
            y = Mul(x, row)
        }""",
        flags("p"),
    ),
    "a step gives a flag or keeps a vector of one": Case(
        """g (int64 n, float[2,3] x) => (float[2,3] y, bool[1] z) <int64[1] none = {0}> {
            two = Constant<value_ints=[2]>()
            start = Less(two, none)
            y, z = Loop (n, , x, start) <
                body = l (int64 i, bool c, float[2,3] s, f) => (bool c2, float[2,3] s2, f2) {
                    c2 = Identity(c)
                    s2 = Neg(s)
                    three = Constant<value=int64 {3}>()
                    late = Equal(i, three)
                    flag = If (late) <
                        then_branch = a () => (r) { r = Constant<value=bool {1}>() },
                        else_branch = d () => (r) { k = Cast<to=7>(f)  v = Add(k, none)  r = Cast<to=9>(v) }
                    >
                    k2 = Cast<to=7>(flag)
                    v2 = Add(k2, none)
                    f2 = Cast<to=9>(v2)
                }
            >
        }""",
        counts(5, 4, 3, 1),
    ),
    "a scan backwards along other axes": Case(
        """g (float[2,5,3] x, float[2,3] h) => (float[2,3] y, float[2,5,3] z, float[5,2,3] w) {
            y, z, w = Scan <
                num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1,0],
                scan_output_directions=[1,0],
                body = l (float[2,3] s, float[2,3] xs) => (float[2,3] s2, float[2,3] z1, float[2,3] w1) {
                    t = Add(s, xs)
                    s2 = Tanh(t)
                    z1 = Neg(s2)
                    w1 = Identity(s2)
                }
            > (h, x)
        }""",
        [{"x": RANDOM.standard_normal((2, 5, 3)).astype(np.float32), "h": X}],
    ),
    "a scan of open length": Case(
        """g (float[T,N,3] x, float[N,3] h) => (float[N,3] y, float[T,N,3] z) {
            y, z = Scan <num_scan_inputs=1,
                body = l (s, xs) => (float[N,3] s2, float[N,3] z1) { t = Add(s, xs)  s2 = Tanh(t)  z1 = Neg(s2) }
            > (h, x)
        }""",
        [{"x": RANDOM.standard_normal((steps, 2, 3)).astype(np.float32), "h": X} for steps in (5, 1, 9)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow_computes_what_onnx_runtime_does(conformance: Conformance, name: str) -> None:
    model = model_from(CASES[name].graph)
    feeds = [dict(feed) for feed in CASES[name].feeds]
    answers = conformance.convert_and_run(model, feeds)
    for feed, answer in zip(feeds, answers, strict=True):
        for output, expected in run_onnx(model, feed).items():
            assert not difference(expected, answer[output], atol=1e-5), (output, feed)


REFUSED = {
    "dimensions": """g (bool p, float[2,3] x) => (y) {
        y = If (p) <
            then_branch = a () => (r) { r = Neg(x) },
            else_branch = d () => (r) { axes = Constant<value_ints=[0]>()  r = Unsqueeze(x, axes) }
        >
    }""",
    "has no end": """g (float[3] x) => (float[3] y) {
        y = Loop ( , , x) <
            body = l (int64 i, bool c, float[3] s) => (bool c2, float[3] s2) { c2 = Identity(c)  s2 = Neg(s) }
        >
    }""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_tflite_cannot_hold_is_refused_with_the_reason(conformance: Conformance, reason: str) -> None:
    with pytest.raises(CannotConvertError, match=reason):
        conformance.convert_and_run(model_from(REFUSED[reason]), [])


def model_from(graph: str) -> Model:
    return Model(onnx_ir.from_proto(onnx.parser.parse_model(HEADER + graph)))
