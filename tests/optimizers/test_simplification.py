"""Passes of simplification: fewer nodes, the same answers, and graphs that are left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.optimizers.simplified import answers, check, model_of, ops, simple

# Graph, operators that are left. {w:4,2} stands for a constant w of that shape.
SMALLER = {
    "identity": (
        "g (float[N,4] x) => (float[N,4] y) { a = Identity(x) b = Relu(a) y = Identity(b) }",
        {"Relu": 1},
    ),
    "dropout": ("g (float[N,4] x) => (float[N,4] y) { a = Dropout(x) y = Relu(a) }", {"Relu": 1}),
    "cast to the same type": (
        "g (float[N,4] x) => (float[N,4] y) { a = Cast<to=1>(x) y = Relu(a) }",
        {"Relu": 1},
    ),
    "casts, the first of which loses nothing": (
        "g (float[N,4] x) => (float[N,4] y) { a = Cast<to=11>(x) b = Cast<to=1>(a) y = Relu(b) }",
        {"Relu": 1},
    ),
    "neutral numbers": (
        "g (float[N,4] x) => (float[N,4] y) <float one = {1.0}, float[1] zero = {0.0}> "
        "{ a = Mul(x, one) b = Add(zero, a) c = Div(b, one) d = Sub(c, zero) y = Relu(d) }",
        {"Relu": 1},
    ),
    "reshapes in a row": (
        "g (float[N,4,6] x) => (float[N,24] y) <int64[3] s = {0, 2, 12}, int64[1] a1 = {1}> "
        "{ a = Reshape(x, s) b = Unsqueeze(a, a1) c = Squeeze(b, a1) d = Flatten(c) y = Relu(d) }",
        {"Reshape": 1, "Relu": 1},
    ),
    "reshapes there and back": (
        "g (float[N,4,6] x) => (float[N,4,6] y) <int64[3] s = {0, 2, 12}, int64[3] t = {0, 4, 6}> "
        "{ a = Reshape(x, s) b = Reshape(a, t) y = Relu(b) }",
        {"Relu": 1},
    ),
    "a reshape to the same open sizes": (
        "g (float[N,1,H,W] x) => (float[N,1,H,W] y) <int64[4] s = {-1, 1, 0, 0}> { a = Reshape(x, s) y = Relu(a) }",
        {"Relu": 1},
    ),
    "a reshape by computed sizes": (
        "g (float[N,4,6] x) => (float[N,24] y) <int64 i0 = {0}, int64[1] a0 = {0}, int64[1] rest = {-1}> "
        "{ s = Shape(x) n = Gather(s, i0) m = Unsqueeze(n, a0) t = Concat<axis=0>(m, rest) y = Reshape(x, t) }",
        {"Reshape": 1},
    ),
    "a shape of two open sizes": (
        "g (float[N,M,8] x) => (float[N,M,2,4] y) <int64[1] i0 = {0}, int64[1] i2 = {2}, int64[2] rest = {2, 4}> "
        "{ s = Shape(x) n = Slice(s, i0, i2) t = Concat<axis=0>(n, rest) y = Reshape(x, t) }",
        {"Reshape": 1},
    ),
    "transposes there and back": (
        "g (float[N,4,6] x) => (float[N,4,6] y) "
        "{ a = Transpose<perm=[0,2,1]>(x) b = Relu(a) c = Tanh(b) y = Transpose<perm=[0,2,1]>(c) }",
        {"Relu": 1, "Tanh": 1},
    ),
    "transposes in a row": (
        "g (float[N,4,6] x) => (float[6,N,4] y) "
        "{ a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[1,0,2]>(a) y = Identity(b) }",
        {"Transpose": 1},
    ),
    "slices along two axes": (
        "g (float[N,8,6] x) => (float[N,3,2] y) <int64[1] s = {1}, int64[1] e = {4}, int64[1] a1 = {1}, "
        "int64[1] e2 = {3}, int64[1] a2 = {2}> { a = Slice(x, s, e, a1) y = Slice(a, s, e2, a2) }",
        {"Slice": 1},
    ),
    "a slice of everything": (
        "g (float[N,8] x) => (float[N,8] y) <int64[1] s = {0}, int64[1] e = {9223372036854775807}, int64[1] a0 = {0}> "
        "{ a = Slice(x, s, e, a0) y = Relu(a) }",
        {"Relu": 1},
    ),
    "nothing of an open dimension, joined": (
        "g (float[N,4] x) => (float[N,M] y) <int64[1] four = {4}, int64[1] far = {1000}, int64[1] one = {1}> "
        "{ a = Relu(x) none = Slice(a, four, far, one) b = Concat<axis=1>(a, none) y = Neg(b) }",
        {"Relu": 1, "Neg": 1},
    ),
    "concats along one axis": (
        "g (float[N,2] x, float[N,3] z) => (float[N,7] y) "
        "{ a = Concat<axis=1>(x, z) b = Concat<axis=-1>(a, x) y = Relu(b) }",
        {"Concat": 1, "Relu": 1},
    ),
    "a matrix product and its bias": (
        "g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1.0,2.0,3.0,4.0,5.0,6.0}, float[3] b = {1.0,-1.0,0.5}> "
        "{ a = MatMul(x, w) y = Add(b, a) }",
        {"Gemm": 1},
    ),
    "a scaled and shifted Gemm": (
        "g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1.0,2.0,3.0,4.0,5.0,6.0}, float[3] b = {1.0,-1.0,0.5}, "
        "float[3] k = {2.0,3.0,4.0}, float c = {7.0}> { a = Gemm(x, w, b) d = Mul(a, k) e = Sub(d, c) y = Neg(e) }",
        {"Gemm": 1},
    ),
    "a Gemm that adds nothing, and a bias": (
        "g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1.0,2.0,3.0,4.0,5.0,6.0}, float[3] b = {1.0,-1.0,0.5}> "
        "{ a = Gemm<beta=0.0>(x, w) y = Add(a, b) }",
        {"Gemm": 1},
    ),
    "a resize by 1": (
        "g (float[N,1,10] x) => (float[N,1,10] y) <float[3] s = {1.0, 1.0, 1.0}> "
        '{ a = Resize<mode="linear">(x, , s) y = Relu(a) }',
        {"Relu": 1},
    ),
    "bounds on bounds": (
        "g (float[N,4] x) => (float[N,4] y) <float low = {-1.0}, float high = {6.0}> "
        "{ a = Relu(x) b = Clip(a, low, high) c = Relu(b) y = Relu(c) }",
        {"Clip": 1},
    ),
    "a written-out HardSwish": (
        "g (float[N,4] x) => (float[N,4] y) <float three = {3.0}, float zero = {0.0}, float six = {6.0}> "
        "{ a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six) }",
        {"HardSwish": 1},
    ),
    "a written-out LayerNormalization": (
        "g (float[N,4] x) => (float[N,4] y) <float two = {2.0}, float e = {0.00001}, "
        "float[4] k = {1.0,2.0,3.0,4.0}, float[4] b = {4.0,3.0,2.0,1.0}> "
        "{ m = ReduceMean<axes=[-1]>(x) c = Sub(x, m) q = Pow(c, two) v = ReduceMean<axes=[-1]>(q) s = Add(v, e) "
        "r = Sqrt(s) n = Div(c, r) t = Mul(n, k) y = Add(t, b) }",
        {"LayerNormalization": 1},
    ),
    "the same twice": (
        "g (float[N,4] x) => (float[N,4] y) { a = Exp(x) b = Exp(x) y = Mul(a, b) }",
        {"Exp": 1, "Mul": 1},
    ),
    "a known branch": (
        "g (float[N,4] x) => (float[N,4] y) { s = Shape(x) r = Size(s) two = Constant<value = int64 {2}>() "
        "c = Equal(r, two) y = If(c) <then_branch = t () => (float[N,4] p) { p = Relu(x) }, "
        "else_branch = e () => (float[N,4] q) { q = Tanh(x) }> }",
        {"Relu": 1},
    ),
    "a branch on the size of an input": (
        "g (float[2,3] x) => (float[2,3] y) { n = Size(x) six = Constant<value = int64 {6}>() c = Equal(n, six) "
        "y = If(c) <then_branch = t () => (float[2,3] p) { p = Relu(x) }, "
        "else_branch = e () => (float[2,3] q) { q = Tanh(x) }> }",
        {"Relu": 1},
    ),
    "a part of a shape": (
        "g (float[N,2,M,3] x) => (int64[2] y) <int64[1] from = {1}, int64[1] to = {3}> "
        "{ s = Shape(x) y = Slice(s, from, to) }",
        {"Shape": 1},
    ),
    "what nobody reads": ("g (float[N,4] x) => (float[N,4] y) { a = Exp(x) y = Relu(x) }", {"Relu": 1}),
    "zeros to pad a convolution": (
        "g (float[N,1,6] x) => (float[N,1,6] y) <int64[6] p = {0,0,1,0,0,1}, float[1,1,3] w = {1.0,2.0,3.0}> "
        "{ a = Pad(x, p) y = Conv(a, w) }",
        {"Conv": 1},
    ),
    "a normalized and scaled convolution": (
        "g (float[N,1,6] x) => (float[N,2,4] y) <float[2,1,3] w = {1.0,2.0,3.0,4.0,5.0,6.0}, float[2] s = {1.0,2.0}, "
        "float[2] b = {0.5,1.5}, float[2] m = {0.1,0.2}, float[2] v = {1.5,2.5}, float[1,2,1] k = {3.0,5.0}> "
        "{ a = Conv(x, w) c = BatchNormalization(a, s, b, m, v) d = Mul(c, k) y = Neg(d) }",
        {"Conv": 1},
    ),
    "a normalized transposed convolution in groups": (
        "g (float[N,2,4] x) => (float[N,4,6] y) <float[2,2,3] w = {1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0,1.0,2.0,3.0}, "
        "float[4] s = {1.0,2.0,3.0,4.0}, float[4] b = {0.5,1.5,2.5,3.5}, float[4] m = {0.1,0.2,0.3,0.4}, "
        "float[4] v = {1.5,2.5,3.5,4.5}> { a = ConvTranspose<group=2>(x, w) y = BatchNormalization(a, s, b, m, v) }",
        {"ConvTranspose": 1},
    ),
    "a scale behind a product, a bias and moves": (
        "g (float[N,3,2] x) => (float[N,4,3] y) <float[2,4] w = {1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0}, "
        "float[4] b = {1.0,-1.0,0.5,2.0}, float k = {0.25}> "
        "{ a = MatMul(x, w) c = Add(b, a) d = Transpose<perm=[0,2,1]>(c) y = Mul(k, d) }",
        {"MatMul": 1, "Add": 1, "Transpose": 1},
    ),
    "a scale before a product, beside another factor": (
        "g (float[N,3,2] x) => (float[N,3,4] y) <float[2,4] w = {1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0}, float k = {8.0}> "
        "{ a = Div(x, k) t = Tanh(x) c = Mul(t, a) y = MatMul(c, w) }",
        {"Tanh": 1, "Mul": 1, "MatMul": 1},
    ),
    "a scale behind a product with a weight in 8 bits": (
        "g (float[N,3,2] x) => (float[N,3,2] y) <int8[2,2] q = {1,2,3,4}, float[1,2] s = {0.5,0.25}, float k = {3.0}> "
        "{ f = Cast<to=1>(q) z = Transpose<perm=[1,0]>(f) w = Mul(f, s) a = MatMul(x, w) y = Mul(a, k) }",
        {"MatMul": 1},
    ),
    "a transpose between reshapes that join and part": (
        "g (float[N,4,M,6] x) => (float[N,4,6,M] y) <int64 i0 = {0}, int64 i2 = {2}, int64[1] a0 = {0}, "
        "int64[1] rest = {-1}, int64[1] six = {6}, int64[1] four = {4}> "
        "{ s = Shape(x) n0 = Gather(s, i0) m0 = Gather(s, i2) n = Unsqueeze(n0, a0) m = Unsqueeze(m0, a0) "
        "t = Concat<axis=0>(rest, m, six) a = Reshape(x, t) b = Transpose<perm=[0,2,1]>(a) "
        "u = Concat<axis=0>(n, four, six, m) y = Reshape(b, u) }",
        {"Transpose": 1},
    ),
    "a gather by counts": (
        "g (bool[N,M] x, float[N,2,M,M] z) => (float[N,2,M,M] y) <int64 i0 = {0}, int64 i1 = {1}, "
        "int64[3] a123 = {1,2,3}, int64[3] a012 = {0,1,2}, int64[1] last = {-1}, int64[3] a013 = {0,1,3}, "
        "float zero = {0.0}, float low = {-1000.0}> "
        "{ s = Shape(x) n = Gather(s, i0) m = Gather(s, i1) rn = Range(i0, n, i1) rm = Range(i0, m, i1) "
        "an = Unsqueeze(rn, a123) am = Unsqueeze(rm, a012) ar = Unsqueeze(rm, a013) true = GreaterOrEqual(ar, i0) "
        "w = Max(an, am) ws = Shape(w) en = Expand(an, ws) em = Expand(am, ws) un = Unsqueeze(en, last) "
        "um = Unsqueeze(em, last) ix = Concat<axis=-1>(un, um) g = GatherND(x, ix) both = And(true, g) "
        "mask = Where(both, zero, low) y = Add(z, mask) }",
        {"Reshape": 1, "Where": 1, "Add": 1},
    ),
    "states that are zero": (
        "g (float[2,N,1] x) => (float[2,1,N,1] y) <float[1,3,1] w = {1.0,2.0,3.0}, float[1,3,1] r = {0.1,0.2,0.3}, "
        "int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] one = {1}, float[1,1,1] zero = {0.0}> "
        "{ s = Shape(x) n = Slice(s, i1, i2) t = Concat<axis=0>(one, n, one) h = Expand(zero, t) "
        "y = GRU<hidden_size=1>(x, w, r, , , h) }",
        {"GRU": 1},
    ),
}


@pytest.mark.parametrize("case", SMALLER)
def test_redundant_nodes_are_removed_and_answers_stay(case: str, tmp_path: Path) -> None:
    text, expected = SMALLER[case]
    check(text, expected, tmp_path)


ALONE = {
    "a resize by nearly 1": (
        "g (float[N,1,10] x) => (float[N,1,10] y) <float[3] s = {1.0, 1.0, 1.05}> "
        '{ y = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(x, , s) }'
    ),
    "a product of what was quantized": (
        "g (float[N,2] x) => (float[N,2] y) <int8[2,2] q = {1,2,3,4}, float s = {0.5}, int8 z = {0}, "
        "float[2] b = {1.0,2.0}> { w = DequantizeLinear(q, s, z) a = MatMul(x, w) y = Add(a, b) }"
    ),
    "a scale of what others read as well": (
        "g (float[N,3,2] x) => (float[N,3,2] y, float[N,3,2] z) <float[2,2] w = {1.0,2.0,3.0,4.0}, float k = {3.0}> "
        "{ z = MatMul(x, w) y = Mul(z, k) }"
    ),
    "a gather by what only may be counts": (
        "g (float[N,M] x) => (float[N,N] y) <int64 i0 = {0}, int64 i1 = {1}, int64[1] a1 = {1}, "
        "int64[1] a0 = {0}, int64[1] last = {-1}> "
        "{ s = Shape<start=0,end=1>(x) n = Squeeze(s) rn = Range(i0, n, i1) rm = Abs(rn) "
        "an = Unsqueeze(rn, a1) am = Unsqueeze(rm, a0) w = Max(an, am) ws = Shape(w) en = Expand(an, ws) "
        "em = Expand(am, ws) un = Unsqueeze(en, last) um = Unsqueeze(em, last) ix = Concat<axis=-1>(un, um) "
        "y = GatherND(x, ix) }"
    ),
    "an input that is an output": "g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }",
    "two outputs of one value": "g (float[N,4] x) => (float[N,4] y, float[N,4] z) { y = Relu(x) z = Identity(y) }",
    "a cast that rounds": "g (float[N,4] x) => (float[N,4] y) { a = Cast<to=6>(x) y = Cast<to=1>(a) }",
    "a product that others read": (
        "g (float[N,2] x) => (float[N,3] y, float[N,3] z) <float[2,3] w = {1.0,2.0,3.0,4.0,5.0,6.0}, "
        "float[3] b = {1.0,-1.0,0.5}> { z = MatMul(x, w) y = Add(b, z) }"
    ),
    "one added to what it makes larger": (
        "g (float[4] x) => (float[2,4] y) <float[2,4] zero = {0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0}> { y = Add(x, zero) }"
    ),
    "a pad that is not of zeros": (
        "g (float[N,1,6] x) => (float[N,1,6] y) <int64[6] p = {0,0,1,0,0,1}, float one = {1.0}, "
        "float[1,1,3] w = {1.0,2.0,3.0}> { a = Pad(x, p, one) y = Conv(a, w) }"
    ),
    "transposes that do not cancel": (
        "g (float[N,4,6] x) => (float[N,6,4] y) { a = Transpose<perm=[0,2,1]>(x) y = Softmax<axis=1>(a) }"
    ),
    "a Clip that is wider than a Sigmoid's like": (
        "g (float[N,4] x) => (float[N,4] y) <float low = {0.2}, float high = {0.8}> "
        "{ a = Sigmoid(x) y = Clip(a, low, high) }"
    ),
    "almost a HardSwish": (
        "g (float[N,4] x) => (float[N,4] y) <float three = {3.0}, float zero = {0.0}, float five = {5.0}, "
        "float six = {6.0}> { a = Add(x, three) b = Clip(a, zero, five) c = Mul(x, b) y = Div(c, six) }"
    ),
    "a normalization whose scale is computed": (
        "g (float[N,1,6] x, float[2] k) => (float[N,2,4] y) <float[2,1,3] w = {1.0,2.0,3.0,4.0,5.0,6.0}, "
        "float[2] b = {0.5,1.5}, float[2] m = {0.1,0.2}, float[2] v = {1.5,2.5}> "
        "{ a = Conv(x, w) s = Neg(k) y = BatchNormalization(a, s, b, m, v) }"
    ),
    "a factor that raises the rank": (
        "g (float[N,2] x) => (float[1,N,2] y) <float[2,2] w = {1.0,2.0,3.0,4.0}, float[1,1,1] k = {3.0}> "
        "{ a = MatMul(x, w) y = Mul(k, a) }"
    ),
    "a view of nothing": (
        "g (float[0,4] x) => (float[1,1,0,4] y) <int64[1] i = {0}> { a = Unsqueeze(x, i) y = Unsqueeze(a, i) }"
    ),
    "slices along one axis": (
        "g (float[N,8] x) => (float[N,2] y) <int64[1] s = {1}, int64[1] e = {6}, int64[1] f = {3}, int64[1] a1 = {1}> "
        "{ a = Slice(x, s, e, a1) y = Slice(a, s, f, a1) }"
    ),
    "quantized weights": (
        "g (float[N,2] x) => (float[N,2] y) <int8[2,2] q = {1,2,3,4}, float s = {0.5}, int8 z = {0}> "
        "{ w = DequantizeLinear(q, s, z) y = MatMul(x, w) }"
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_graph_without_the_pattern_is_left_alone(case: str, tmp_path: Path) -> None:
    check(ALONE[case], ops(model_of(ALONE[case])), tmp_path)


# Formulas over x: float[3] whose one-element constants have three dimensions: so has the result.
RAISING = {
    "HardSigmoid": (
        "{ a = Add(x, three) b = Clip(a, zero, six) y = Div(b, six3) }",
        "float[1,1,1] three = {3.0}, float zero = {0.0}, float six = {6.0}, float[1,1,1] six3 = {6.0}",
    ),
    "HardSigmoid, by its sum": (
        "{ a = Add(x, three) b = Clip(a, zero, six) y = Div(b, six) }",
        "float[1,1,1] three = {3.0}, float zero = {0.0}, float six = {6.0}",
    ),
    "HardSwish": (
        "{ a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six3) }",
        "float three = {3.0}, float zero = {0.0}, float six = {6.0}, float[1,1,1] six3 = {6.0}",
    ),
    "HardSwish, by its sum": (
        "{ a = Add(three, x) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six) }",
        "float[1,1,1] three = {3.0}, float zero = {0.0}, float six = {6.0}",
    ),
    "HardSwish of HardSigmoid": (
        "{ a = Add(x, three) b = Clip(a, zero, six) c = Div(b, six3) y = Mul(x, c) }",
        "float three = {3.0}, float zero = {0.0}, float six = {6.0}, float[1,1,1] six3 = {6.0}",
    ),
    "Gelu": (
        "{ a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }",
        "float root = {1.41421356}, float one = {1.0}, float[1,1,1] half = {0.5}",
    ),
    "LayerNormalization": (
        "{ m = ReduceMean<axes=[-1]>(x) c = Sub(x, m) s = Mul(c, c) v = ReduceMean<axes=[-1]>(s) "
        "e = Add(v, epsilon) r = Sqrt(e) y = Div(c, r) }",
        "float[1,1,1] epsilon = {0.00001}",
    ),
    "LayerNormalization, by its square": (
        "{ m = ReduceMean<axes=[-1]>(x) c = Sub(x, m) s = Pow(c, two) v = ReduceMean<axes=[-1]>(s) "
        "e = Add(v, epsilon) r = Sqrt(e) y = Div(c, r) }",
        "float epsilon = {0.00001}, float[1,1,1] two = {2.0}",
    ),
    "x + 0": ("{ a = Relu(x) y = Add(a, zero) }", "float[1,1,1] zero = {0.0}"),
    "0 + x": ("{ a = Relu(x) y = Add(zero, a) }", "float[1,1,1] zero = {0.0}"),
    "x - 0": ("{ a = Relu(x) y = Sub(a, zero) }", "float[1,1,1] zero = {0.0}"),
    "x * 1": ("{ a = Relu(x) y = Mul(a, one) }", "float[1,1,1] one = {1.0}"),
    "x / 1": ("{ a = Relu(x) y = Div(a, one) }", "float[1,1,1] one = {1.0}"),
    "x ** 1": ("{ a = Relu(x) y = Pow(a, one) }", "float[1,1,1] one = {1.0}"),
    "a scale before a product": (
        "{ a = Mul(x, k) y = MatMul(a, w) }",
        "float[1,1,1] k = {2.0}, float[3,3] w = {1,2,3,4,5,6,7,8,9}",
    ),
    "a scale behind a product": (
        "{ a = MatMul(x, w) y = Mul(a, k) }",
        "float[1,1,1] k = {2.0}, float[3,3] w = {1,2,3,4,5,6,7,8,9}",
    ),
    "a scale before a sum": (
        "{ a = MatMul(x, w) b = Add(a, t) c = Relu(b) y = Mul(c, k) }",
        "float[1,1,1] t = {2.0}, float k = {3.0}, float[3,3] w = {1,2,3,4,5,6,7,8,9}",
    ),
    "Clip of Relu": (
        "{ a = Relu(x) b = Clip(a, zero, six) y = Mul(b, one) }",
        "float zero = {0.0}, float six = {6.0}, float[1,1,1] one = {1.0}",
    ),
}


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("case", RAISING)
def test_a_constant_that_raises_the_rank_is_not_dropped(case: str, opset: int, tmp_path: Path) -> None:
    body, constants = RAISING[case]
    if opset >= 18:
        body = body.replace("ReduceMean<axes=[-1]>(x)", "ReduceMean(x, last)").replace(
            "ReduceMean<axes=[-1]>(s)", "ReduceMean(s, last)"
        )
        constants += ", int64[1] last = {-1}"
    model = model_of(f"g (float[3] x) => (float[1,1,3] y) <{constants}> {body}", opset)
    made = simple(model, tmp_path)
    for before, after in zip(answers(model), answers(made.model), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("op", "rest"),
    [
        ("Conv", "float[2,2,1] w = {1,2,3,4}"),
        ("ConvTranspose", "float[2,2,1] w = {1,2,3,4}"),
        ("Gemm", "float[2,2] w = {1,2,3,4}"),
    ],
)
@pytest.mark.parametrize("affine", ["Add", "Sub", "Mul", "Div"])
def test_a_number_that_raises_the_rank_is_no_part_of_a_product(
    op: str, rest: str, affine: str, tmp_path: Path
) -> None:
    dims = "2,2" if op == "Gemm" else "1,2,3"
    text = f"g (float[{dims}] x) => (float[1,1,{dims}] y) <float[1,1,1,1,1] k = {{2.0}}, {rest}> "
    text = text.replace("1,1,1,1,1] k", "1,1,1,1] k") if op == "Gemm" else text
    model = model_of(text + f"{{ a = {op}(x, w) y = {affine}(a, k) }}")
    made = simple(model, tmp_path)
    for before, after in zip(answers(model), answers(made.model), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5)


def test_a_written_out_hard_swish_is_a_hard_sigmoid_before_opset_14(tmp_path: Path) -> None:
    check(SMALLER["a written-out HardSwish"][0], {"HardSigmoid": 1, "Mul": 1}, tmp_path, opset=13)


def test_equal_constants_are_stored_once_and_others_stay(tmp_path: Path) -> None:
    text = (
        "g (float[N,2] x) => (float[N,2] y) <float[2,2] v = {1.0,2.0,3.0,4.0}, float[2,2] w = {1.0,2.0,3.0,4.0}, "
        "float[2,2] o = {4.0,3.0,2.0,1.0}> { a = MatMul(x, v) b = Relu(a) c = MatMul(b, w) y = MatMul(c, o) }"
    )
    check(text, {"MatMul": 3, "Relu": 1}, tmp_path)
    stored = simple(model_of(text), tmp_path).model.graph.initializers.values()
    assert sorted(value.const_value.numpy().tolist() for value in stored if value.const_value) == [
        [[1.0, 2.0], [3.0, 4.0]],
        [[4.0, 3.0], [2.0, 1.0]],
    ]
