"""Every newer form of an operator, lowered, gives ONNX Runtime's answers for the newer one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxport.formats.model import Model
from onnxport.optimizers.opset import LiftError, convert_opset, lower
from onnxport.optimizers.opset.downgrades.arithmetic import WIDER
from onnxport.optimizers.opset.node import ADAPTERS, LOWERINGS
from onnxport.optimizers.params import LOWEST_OPSET, NEWEST_OPSET
from onnxport.optimizers.rewrites.registry import rewritten_ops
from tests.optimizers.graphs import assert_same, build, check, feeds, graphs, inside_if, operators, run

# As in test_opset.py: opset, then the graph. `_` is an absent input, `float[]` has no shape.
LOWERED = """
26 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceMean<keepdims=0>(x, a) }
18 (float[2,N,4] x) => (float[2,N,1] y) <int64[1] a = {-1}> { b = Relu(x) y = ReduceL1(b, a) }
16 (float[N,1,4,4] x, float[N,2,3,2] g) => (float[N,1,2,3] y) { a = Relu(x) y = GridSample(a, g) }
18 (float[2,3,4] x) => (float[] y) <int64[2] a = {0, -1}> { y = ReduceL1(x, a) }
18 (float[2,3,4] x) => (float[] y) { y = ReduceL2(x) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { b = Abs(x) y = ReduceLogSum(b, a) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceLogSumExp(x, a) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceMax(x, a) }
20 (bool[2,3,4] x) => (bool[] y) <int64[1] a = {1}> { y = ReduceMax(x, a) }
20 (bool[2,3,4] x) => (bool[] y) <int64[1] a = {1}> { y = ReduceMin(x, a) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceMin(x, a) }
13 (int8[2,3,4] x) => (int8[] y) { y = ReduceMin<axes=[1]>(x) }
13 (uint8[2,3,4] x) => (uint8[] y) { y = ReduceMax<axes=[1]>(x) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceProd(x, a) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceSumSquare(x, a) }
18 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }
18 (float[2,3,4] x) => (float[] y) { y = ReduceSum<noop_with_empty_axes=1>(x) }
18 (float[2,3,4] x) => (float[] y) { y = ReduceL2<noop_with_empty_axes=1>(x) }
18 (float[2,3,4] x) => (float[] y) <int64[0] a = {}> { y = ReduceMax<noop_with_empty_axes=1>(x, a) }
13 (float[1,3,1,2] x) => (float[] y) <int64[1] a = {-2}> { y = Squeeze(x, a) }
13 (float[1,3,1,2] x) => (float[] y) { y = Squeeze(x) }
25 (float[3,2] x) => (float[] y) { a = Constant<value_ints=[0, -1]>() y = Unsqueeze(x, a) }
24 (float[3] x) => (float[] y) { a = Constant<value_int=2>() b = Constant<value_float=1.5>()
     c = Constant<value_floats=[1.0, 2.0, 3.0]>() d = Cast<to=1>(a) e = Mul(x, d) f = Add(e, b) y = Add(f, c) }
13 (float[2,6] x) => (float[] y, float[] z) <int64[2] s = {1, 5}> { y, z = Split<axis=1>(x, s) }
18 (float[2,6] x) => (float[] y, float[] z) { y, z = Split<axis=-1, num_outputs=2>(x) }
18 (float[2,7] x) => (float[] y, float[] z, float[] w) { y, z, w = Split<axis=1, num_outputs=3>(x) }
18 (float[2,W] x) => (float[] y, float[] z) { y, z = Split<axis=1, num_outputs=2>(x) }
13 (float[2,6] x, int64[2] split) => (float[] y, float[] z) { y, z = Split<axis=1>(x, split) }
12 (float[2,6] x) => (int64[] y) { a = Round(x) y = ArgMax<select_last_index=1, axis=1>(a) }
13 (float[6] x) => (int64[] y) { a = Round(x) y = ArgMin<select_last_index=1, keepdims=0>(a) }
18 (float[4,3] x) => (float[] y) <int64[2] p = {1, 2}, int64[1] a = {-1}, float v = {0.5}> { y = Pad(x, p, v, a) }
18 (float[4,3] x, int64[2] p) => (float[] y) <int64[1] a = {1}> { y = Pad<mode="edge">(x, p, _, a) }
19 (float[4,3] x) => (float[] y) <int64[4] p = {1, 2, 0, 1}> { y = Pad<mode="reflect">(x, p) }
13 (bool[2,3] x) => (bool[] y) <int64[4] p = {1, 0, 0, 1}> { y = Pad(x, p) }
15 (float[2,3,4] x) => (int64[] y) { y = Shape<start=1>(x) }
19 (float[2,3,4] x) => (int64[] y) { y = Shape<start=-3, end=-1>(x) }
14 (float[2,3,4] x) => (float[] y) <int64 k = {1}> { y = Trilu(x, k) }
14 (int64[4,3] x) => (int64[] y) { y = Trilu<upper=0>(x) }
14 (bool[2,3,4] x) => (bool[] y) { y = Trilu(x) }
14 (float[N,C] x, int64 k) => (float[] y) { y = Trilu<upper=0>(x, k) }
14 (float[2,3] x) => (float[] y) <int64[2] s = {3, -1}> { y = Reshape<allowzero=1>(x, s) }

13 (float[2,3,4] x) => (float[] y) { y = Softmax(x) }
13 (float[2,3,4] x) => (float[] y) { y = Softmax<axis=1>(x) }
13 (float[2,3,4] x) => (float[] y) { y = LogSoftmax<axis=0>(x) }
13 (float[2,3,1] x) => (float[] y) { y = Softmax<axis=1>(x) }
13 (float[2,3,4] x) => (float[] y) { y = Hardmax<axis=-2>(x) }
13 (float[N,C,H,W] x) => (float[] y) { y = Softmax<axis=1>(x) }
13 (float[N,C,H] x, int64[R] shape) => (float[] y) { r = Reshape(x, shape) y = Softmax<axis=1>(r) }
15 (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[] y)
     { y = BatchNormalization<epsilon=0.1>(x, s, b, m, v) }
14 (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[] y, float[] mean, float[] var)
     { y, mean, var = BatchNormalization<training_mode=1, momentum=0.5>(x, s, b, m, v) }
13 (float[2,3] x) => (float[] y) <float r = {0.3}, bool t = {0}> { y = Dropout(x, r, t) }
22 (float[2,3] x) => (float[] y, bool[] m) { y, m = Dropout(x) }
18 (float[2,6,4] x, float[2] s, float[2] b) => (float[] y) { y = GroupNormalization<num_groups=2>(x, s, b) }
21 (float[2,6,4] x, float[6] s, float[6] b) => (float[] y) { y = GroupNormalization<num_groups=2>(x, s, b) }
17 (float[2,3,4] x, float[4] s, float[4] b) => (float[] y) { y = LayerNormalization(x, s, b) }
17 (float[2,3,4] x, float[3,4] s) => (float[] y, float[] m, float[] d)
     { y, m, d = LayerNormalization<axis=1, epsilon=0.01>(x, s) }
17 (float16[2,3,4] x, float16[4] s, float16[4] b) => (float16[] y) { y = LayerNormalization(x, s, b) }
17 (double[2,3,4] x, double[4] s, double[4] b) => (double[] y) { y = LayerNormalization(x, s, b) }
23 (float[2,3,4] x, float[4] s) => (float[] y) { y = RMSNormalization(x, s) }
23 (float[2,3,4] x, float[3,4] s) => (float[] y) { y = RMSNormalization<axis=1, epsilon=0.1>(x, s) }

12 (int64[2,3] x) => (int64[] y) <int64 low = {0}, int64 high = {1}> { y = Clip(x, low, high) }
13 (int8[2,3] x) => (int8[] y) <int8 low = {0}> { y = Clip(x, low) }
13 (float[2,3] x) => (float[] y) <float high = {0.5}> { y = Clip(x, _, high) }
13 (int64[2,3] x, int64[3] z, int64 w) => (int64[] y) { y = Max(x, z, w) }
12 (int32[2,3] x, int32[3] z) => (int32[] y) { y = Min(x, z) }
13 (float[2,3] x, float[3] z) => (float[] y) { y = Min(x, z) }
13 (uint8[2,3] x, uint8[3] z) => (uint8[] y) { y = Max(x, z) }
13 (uint32[2,3] x) => (uint32[] y) <uint32 high = {1}> { y = Clip(x, _, high) }
14 (int8[2,3] x, int8[3] z) => (int8[] y) { a = Add(x, z) b = Mul(a, x) y = Sub(b, z) }
14 (uint8[2,3] x) => (uint8[] y) <uint8 c = {2}> { y = Div(x, c) }
14 (int32[2,3] x) => (int32[] y) { y = Relu(x) }
12 (uint8[1,1,4,4] x) => (uint8[] y) { y = MaxPool<kernel_shape=[2, 2]>(x) }
12 (float[2,3] x) => (float[] y) <int64 e = {3}> { y = Pow(x, e) }
12 (int32[2,3] x) => (int32[] y) <float e = {0.5}> { a = Abs(x) y = Pow(a, e) }
15 (int32[2,3] x, int32[2,3] e) => (int32[] y) { a = Abs(e) y = Pow(x, a) }
20 (float16[2,3] x) => (bool[] y) { y = IsInf(x) }
18 (int32[2,3] x) => (int32[] y) { y = BitwiseNot(x) }
12 (float[2,3] x, float[3] z) => (bool[] y, bool[] w) { y = GreaterOrEqual(x, z) w = LessOrEqual(x, z) }
15 (float[2,3] x, int64[1] i) => (int64[] y) { y = CastLike(x, i) }

12 (float[2,3] x) => (float[] y) { y = Einsum<equation="ij->j">(x) }
12 (float[2,3] x, float[3,4] w) => (float[] y) { y = Einsum<equation="ij,jk">(x, w) }
12 (float[2,5,3,4] q, float[2,6,3,4] k) => (float[] y) { y = Einsum<equation="bqhd,bkhd->bhqk">(q, k) }
12 (float[2,3] x, float[4,5] w) => (float[] y) { y = Einsum<equation="ij, kl -> likj">(x, w) }
12 (float[2,3] x, float[2,3] w) => (float[] y) { y = Einsum<equation="ij,ij->">(x, w) }
13 (float[2,3] x, float[3,4,5] w, float[5,2] z) => (float[] y) { y = Einsum<equation="ij,jkl,li->ki">(x, w, z) }
12 (double[N,3,2] x, double[3,N] w) => (double[] y) { y = Einsum<equation="nij,in->nj">(x, w) }
20 (float[2,3] x) => (float[] y) { y = Gelu(x) }
20 (float[2,3] x) => (float[] y) { y = Gelu<approximate="tanh">(x) }
14 (float[2,3] x) => (float[] y) { y = HardSwish(x) }
18 (float[2,3] x) => (float[] y) { y = Mish(x) }
24 (float[2,3] x) => (float[] y) { y = Swish<alpha=0.5>(x) }
12 (float[2,3] x) => (float[] y) { y = Celu<alpha=2.0>(x) }
17 (float[2] x) => (float[] y) <int64 n = {10}> { y = HannWindow(n) }
23 (float[1,2,3,8] q, float[1,2,5,8] k, float[1,2,5,8] v) => (float[] y) { y = Attention(q, k, v) }
24 (float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v) => (float[] y) { y = Attention<is_causal=1>(q, k, v) }
13 (float[3,5] x) => (float[] y) <int64[3] t = {1, 0, 4}> { y = SoftmaxCrossEntropyLoss(x, t) }

11 (float[1,2,7,9] x) => (float[] y) <float[0] none = {}, float[4] s = {1.0, 1.0, 0.6, 2.3}> { y = Resize(x, none, s) }
13 (float[1,2,7,9] x) => (float[] y) <float[4] s = {1.0, 1.0, 0.6, 2.3}> { y = Resize<mode="linear">(x, _, s) }
13 (float[1,2,7,9] x) => (float[] y) <int64[4] z = {1, 2, 4, 20}> { y = Resize<mode="linear">(x, _, _, z) }
18 (float[1,2,7,9] x) => (float[] y) <int64[2] z = {4, 20}> { y = Resize<mode="cubic", axes=[2, 3]>(x, _, _, z) }
18 (float[1,2,7,9] x) => (float[] y) <float[2] s = {0.5, 2.0}> { y = Resize<axes=[-2, -1]>(x, _, s) }
20 (float[1,1,4,4] x, float[1,2,3,2] g) => (float[] y) { y = GridSample(x, g) z = GridSample<mode="cubic">(x, g) }
16 (float[1,1,4,4] x, float[1,2,3,2] g) => (float[] y) { y = GridSample<padding_mode="border">(x, g) }
17 (float[1,8,1] x) => (float[] y) <int64 s = {2}, float[4] w = {0.1, 0.2, 0.5, 1.0}> { y = STFT(x, s, w) }
19 (float[1,1,3,3] x, float[1,1,2,2] w, float[1,8,2,2] o) => (float[] y)
     { y = DeformConv<kernel_shape=[2, 2]>(x, w, o) }
20 (float[2,2,3] t) => (float[] y) <int64[4] z = {2, 1, 4, 3}> { y = AffineGrid(t, z) }
24 (float[2,1,4,3] x, float[2,1,2,3] u) => (float[] y) <int64[2] i = {1, 2}> { y = TensorScatter(x, u, i) }
26 (float[2,3] x) => (float[] y) <int64 a = {1}> { y = CumProd(x, a) }
16 (float[1,1,8,8] x) => (float[] y) <float[1,4] r = {0.0, 0.0, 5.0, 5.0}, int64[1] i = {0}>
     { y = RoiAlign<output_height=3, output_width=2, sampling_ratio=2>(x, r, i) }
16 (float[1,1,8,8] x) => (float[] y) <float[1,4] r = {0.0, 0.0, 5.0, 5.0}, int64[1] i = {0}>
     { y = RoiAlign<coordinate_transformation_mode="output_half_pixel", output_height=3, output_width=2>(x, r, i) }
20 (float[2,5,4,2] x) => (float[] y) { y = DFT(x) }
20 (float[2,5,4,2] x) => (float[] y) <int64 a = {1}> { y = DFT<inverse=1>(x, _, a) }
19 (float[1,2,7,7] x) => (float[] y) { y = AveragePool<kernel_shape=[3, 3], dilations=[1, 1]>(x) }
18 (float[1,2,7,7] x) => (float[] y) { y = LpPool<kernel_shape=[3, 3], dilations=[1, 1]>(x) }

21 (float[2,3] x) => (int8[] y) <float s = {0.02}> { y = QuantizeLinear<output_dtype=3>(x, s) }
23 (float[2,3] x) => (float[] y) <float s = {0.02}, uint8 z = {128}>
     { q = QuantizeLinear<precision=1>(x, s, z) y = DequantizeLinear<output_dtype=1>(q, s, z) }
13 (float[2,3,4] x) => (float[] y) <float[3] s = {0.02, 0.01, 0.03}, uint8[3] z = {128, 120, 0}>
     { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }
13 (float[2,3] x) => (float[] y) <float[2] s = {0.02, 0.01}, int8[2] z = {0, 3}>
     { q = QuantizeLinear<axis=0>(x, s, z) y = DequantizeLinear<axis=-2>(q, s, z) }
13 (float[2,3] x) => (float[] y) <float[2] s = {0.02, 0.01}> { q = QuantizeLinear<axis=0>(x, s)
     y = DequantizeLinear<axis=0>(q, s) }
"""

# Opset, an opset that it cannot be lowered to, and the reason; then the graph.
REFUSED = r"""
13 12 axes are computed at run time
     (float[2,1] x, int64[1] a) => (float[] y) { y = Squeeze(x, a) }
19 18 wrap
     (float[4,3] x) => (float[] y) <int64[4] p = {1, 0, 0, 1}> { y = Pad<mode="wrap">(x, p) }
18 17 its axes or
     (float[4,3] x, int64[1] a) => (float[] y) <int64[2] p = {1, 0}> { y = Pad(x, p, _, a) }
14 13 a size of 0
     (float[0,3] x) => (float[] y) <int64[2] s = {3, 0}> { y = Reshape<allowzero=1>(x, s) }
14 13 a size of 0
     (float[2,3] x, int64[2] s) => (float[] y) { y = Reshape<allowzero=1>(x, s) }
12 11 unsigned 64-bit integers
     (uint64[2,3] x, uint64[3] e) => (uint64[] y) { y = Max(x, e) }
13 11 no training_mode
     (float[2,3] x, bool t) => (float[] y) { y = Dropout(x, _, t) }
15 11 a diagonal
     (float[2,2] x) => (float[] y) { y = Einsum<equation="ii->i">(x) }
12 11 raise 64-bit integers
     (int64[2,3] x, int64[3] e) => (int64[] y) { y = Pow(x, e) }
18 17 bits of unsigned integers
     (uint8[2,3] x) => (uint8[] y) { y = BitwiseNot(x) }
19 18 dilations
     (float[1,2,4,4] x) => (float[] y) { y = AveragePool<kernel_shape=[2, 2], dilations=[2, 2]>(x) }
18 17 antialias
     (float[1,1,4,4] x) => (float[] y) <int64[4] z = {1, 1, 2, 2}> { y = Resize<antialias=1>(x, _, _, z) }
18 17 keep_aspect_ratio_policy
     (float[1,1,4,4] x) => (float[] y) <int64[2] z = {2, 2}>
     { y = Resize<keep_aspect_ratio_policy="not_larger", axes=[2, 3]>(x, _, _, z) }
19 18 half_pixel_symmetric
     (float[1,1,4,4] x) => (float[] y) <float[4] z = {1.0, 1.0, 2.0, 2.0}>
     { y = Resize<coordinate_transformation_mode="half_pixel_symmetric">(x, _, z) }
20 19 3 dimensions
     (float[1,1,4,4,4] x, float[1,2,3,2,3] g) => (float[] y) { y = GridSample(x, g) }
18 17 reduction=min
     (float[3,3] x, int64[1,1] i, float[1,3] u) => (float[] y) { y = ScatterND<reduction="min">(x, i, u) }
18 17 reduction=max
     (float[3,3] x, int64[1,3] i, float[1,3] u) => (float[] y) { y = ScatterElements<reduction="max">(x, i, u) }
16 15 reduction=add
     (float[3,3] x, int64[1,3] i, float[1,3] u) => (float[] y) { y = ScatterElements<reduction="add">(x, i, u) }
20 19 new in opset 20
     (string[2] x) => (string[] y) { y = StringConcat(x, x) }
19 18 does not take tensor\(string\)
     (string[2] x) => (bool[] y) { y = Equal(x, x) }
22 21 does not take tensor\(bfloat16\)
     (bfloat16[2] x) => (bfloat16[] y) { y = Round(x) }
21 20 does not take tensor\(int16\)
     (int16[2] x, float s) => (float[] y) { y = DequantizeLinear(x, s) }
21 20 block
     (float[2,4] x, float[2,2] s) => (uint8[] y) { y = QuantizeLinear<axis=1, block_size=2>(x, s) }
14 13 layout=1
     (float[4,2,3] x, float[1,8,3] w, float[1,8,2] r) => (float[] y) { y = LSTM<hidden_size=2, layout=1>(x, w, r) }
"""
# Lowerings that only refuse; REFUSED shows it.
ONLY_REFUSE = {("Pad", 19), ("Resize", 19), ("ScatterElements", 18), ("ScatterND", 18)}


def lowered(model: onnx.ModelProto, to: int) -> onnx.ModelProto:
    result = ir.to_proto(convert_opset(Model(ir.from_proto(model)), to).model.ir)
    check(result)
    assert list(result.graph.output) == list(model.graph.output)
    assert {entry.domain: entry.version for entry in result.opset_import} == {"": to}
    return result


@pytest.mark.parametrize(("opset", "text"), graphs(LOWERED))
def test_a_lowered_node_gives_the_newer_answers_also_when_lifted_again(opset: int, text: str) -> None:
    model = build(opset, text)
    fed = feeds(model)
    expected = run(model, fed)
    result = lowered(model, LOWEST_OPSET)
    assert_same(run(result, fed), expected)
    again = convert_opset(Model(ir.from_proto(result)), "latest").model.ir
    assert_same(run(ir.to_proto(again), fed), expected)


@pytest.mark.parametrize(("opset", "text"), [row for row in graphs(LOWERED) if "DFT" in row.values[1]])
def test_a_transform_has_its_axis_as_an_attribute_before_opset_20(opset: int, text: str) -> None:
    model = build(opset, text)
    fed = feeds(model)
    assert_same(run(lowered(model, 17), fed), run(model, fed))


@pytest.mark.parametrize(("opset", "text"), graphs(LOWERED)[::3])
def test_nodes_in_subgraphs_are_lowered_as_well(opset: int, text: str) -> None:
    model = inside_if(build(opset, text))
    fed = feeds(model)
    result = lowered(model, LOWEST_OPSET)
    for flag in (True, False):
        fed["flag"] = np.array(flag)
        assert_same(run(result, fed), run(model, fed))


def refused() -> list[Any]:
    rows = re.findall(r"^(\d+) (\d+) (.+)((?:\n {5}.+)+)", REFUSED, flags=re.MULTILINE)
    return [
        pytest.param(int(opset), int(to), text, why, id=f"{opset}-{operators(text)[-1]}")
        for opset, to, why, text in rows
    ]


@pytest.mark.parametrize(("opset", "to", "text", "why"), refused())
def test_a_node_without_an_older_form_is_refused_by_name(opset: int, to: int, text: str, why: str) -> None:
    model = build(opset, text)
    with pytest.raises(LiftError, match=why) as caught:
        convert_opset(Model(ir.from_proto(model)), to)
    (refusal,) = caught.value.refusals
    assert refusal.op in operators(text)
    assert refusal.node == "y"


def test_a_refused_part_of_a_definition_names_the_users_node() -> None:
    model = build(20, "(bfloat16[2,3] x) => (bfloat16[] y) { y = Gelu(x) }")
    model.graph.node[0].name = "act"
    with pytest.raises(LiftError, match="1 of 1 nodes") as caught:
        convert_opset(Model(ir.from_proto(model)), 12)
    (refusal,) = caught.value.refusals
    assert (refusal.op, refusal.node) == ("Gelu", "act")
    assert refusal.why == "it is made of Cast, and opset 12 does not give tensor(bfloat16)"


def test_every_lowering_has_a_case() -> None:
    found = {
        (op, version)
        for row in graphs(LOWERED)
        for op, version in LOWERINGS
        if op in operators(row.values[1]) and row.values[0] >= version
    }
    assert set(LOWERINGS) - ONLY_REFUSE == found - ONLY_REFUSE
    assert {op for op, _ in WIDER} <= {op for row in graphs(LOWERED) for op in operators(row.values[1])}
    assert {op for op, _ in ONLY_REFUSE} <= {op for row in refused() for op in operators(row.values[2])}


def test_every_lift_has_a_lowering() -> None:
    assert {(op, version) for op, version in ADAPTERS if version > LOWEST_OPSET} - set(LOWERINGS) == set()


def test_every_change_of_a_schema_is_undone_or_caught() -> None:
    """A change without a lowering is caught by the schema check: new attributes, inputs, outputs and types."""
    for op, old, new in successors():
        if (op, new.since_version) not in LOWERINGS:
            assert list(unseen(old, new)) == HARMLESS.get((op, new.since_version), []), (
                f"{op}-{new.since_version}"
            )


# Changes that the schema check ignores, and may.
HARMLESS: dict[tuple[str, int], list[str]] = {}


def successors() -> Iterator[tuple[str, onnx.defs.OpSchema, onnx.defs.OpSchema]]:
    schemas: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        if schema.domain == "":
            schemas.setdefault(schema.name, []).append(schema)
    for name, versions in schemas.items():
        for old, new in itertools.pairwise(versions):
            if LOWEST_OPSET < new.since_version <= NEWEST_OPSET:
                yield name, old, new


def unseen(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> Iterator[str]:
    """Return changes that give a node another meaning under the old schema without a new name."""
    for name in old.attributes:
        if name not in new.attributes:
            yield f"{name} is gone"
        elif old.attributes[name].default_value != new.attributes[name].default_value:
            yield f"another default of {name}"
        elif old.attributes[name].required and not new.attributes[name].required:
            yield f"{name} may be absent"
    if len(new.outputs) < len(old.outputs):
        yield "fewer outputs"
    if new.deprecated:
        yield "deprecated"


def test_the_documentation_names_every_operator_without_a_lowering() -> None:
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(first.get(schema.name, NEWEST_OPSET + 1), schema.since_version)
    table = Path("docs/guide/optimize.md").read_text(encoding="utf-8").partition("### What cannot go down")[2]
    for op, version in first.items():
        if not LOWEST_OPSET < version <= NEWEST_OPSET:
            continue
        schema = onnx.defs.get_schema(op, version)
        defined = schema.has_function or schema.has_context_dependent_function or op in rewritten_ops()
        if not defined and (op, version) not in LOWERINGS:
            assert op in table


def test_weights_stay_where_they_are() -> None:
    read = []

    def weight() -> ir.TensorProtocol:
        read.append("w")
        return ir.tensor(np.zeros(1000, np.float32))

    text = """(float[1000] x) => (float[] y) <float[1] w = {0.0}, int64[1] axes = {0}>
        { a = Mul(x, w) b = Gelu(a) y = Unsqueeze(b, axes) }"""
    model = ir.from_proto(build(20, text))
    tensor = ir.LazyTensor(weight, dtype=ir.DataType.FLOAT, shape=ir.Shape([1000]), name="w")
    value = model.graph.initializers["w"]
    value.const_value, value.shape = tensor, ir.Shape([1000])
    lower(model, LOWEST_OPSET)
    assert value.const_value is tensor
    assert not read


def test_a_run_time_shape_is_assumed_to_hold_no_zero_with_a_note() -> None:
    model = build(14, "(float[2,N] x) => (float[] y) { s = Shape(x) y = Reshape<allowzero=1>(x, s) }")
    brought = convert_opset(Model(ir.from_proto(model)), LOWEST_OPSET)
    assert brought.notes == (
        "run-time shapes of Reshape nodes with allowzero are assumed to hold no size of 0",
    )
    fed = feeds(model)
    assert_same(run(ir.to_proto(brought.model.ir), fed), run(model, fed))


def test_the_ir_version_falls_with_the_opset() -> None:
    model = build(21, "(float[2] x) => (float[] y) { y = Relu(x) }")
    model.ir_version = 10
    assert lowered(model, 11).ir_version == 6
    model.opset_import.add(domain="ai.onnx.ml", version=4)
    assert ir.to_proto(convert_opset(Model(ir.from_proto(model)), 11).model.ir).ir_version == 9


def test_functions_are_inlined_before_they_are_lowered() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
        graph (float[2,3] x) => (float[] y) { y = own.total(x) }
        <opset_import: ["": 18], domain: "own"> total(a) => (b)
            { n = Constant<value_ints=[1]>() b = ReduceMax(a, n) }"""
    model = onnx.parser.parse_model(text)
    fed = feeds(model)
    result = ir.to_proto(convert_opset(Model(ir.from_proto(model)), 12).model.ir)
    assert [node.op_type for node in result.graph.node] == ["ReduceMax"]
    assert_same(run(result, fed), run(model, fed))
