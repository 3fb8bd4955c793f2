"""Every newer form of an operator, lowered, answers as ONNX Runtime answers for the newer one."""

from __future__ import annotations

import itertools
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from onnxport.model import Model
from onnxport.optimizers.opset import LiftError, brought_to
from onnxport.optimizers.opset.downward.arithmetic import WIDER
from onnxport.optimizers.opset.downward.registry import LOWERINGS
from onnxport.optimizers.params import LOWEST_OPSET, NEWEST_OPSET
from tests.optimizers.graphs import assert_same, build, check, feeds, graphs, inside_if, operators, run

# As in test_opset.py: opset, then the graph. `_` is an absent input, `float[]` says nothing of the shape.
LOWERED = """
26 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceMean<keepdims=0>(x, a) }
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
18 (float[4,3] x) => (float[] y) <int64[2] p = {1, 2}, int64[1] a = {-1}, float v = {0.5}> { y = Pad(x, p, v, a) }
18 (float[4,3] x, int64[2] p) => (float[] y) <int64[1] a = {1}> { y = Pad<mode="edge">(x, p, _, a) }
19 (float[4,3] x) => (float[] y) <int64[4] p = {1, 2, 0, 1}> { y = Pad<mode="reflect">(x, p) }
13 (bool[2,3] x) => (bool[] y) <int64[4] p = {1, 0, 0, 1}> { y = Pad(x, p) }
15 (float[2,3,4] x) => (int64[] y) { y = Shape<start=1>(x) }
19 (float[2,3,4] x) => (int64[] y) { y = Shape<start=-3, end=-1>(x) }
14 (float[2,3,4] x) => (float[] y) <int64 k = {1}> { y = Trilu(x, k) }
14 (int64[4,3] x) => (int64[] y) { y = Trilu<upper=0>(x) }
14 (float[N,C] x, int64 k) => (float[] y) { y = Trilu<upper=0>(x, k) }
14 (float[2,3] x) => (float[] y) <int64[2] s = {3, -1}> { y = Reshape<allowzero=1>(x, s) }

13 (float[2,3,4] x) => (float[] y) { y = Softmax(x) }
13 (float[2,3,4] x) => (float[] y) { y = Softmax<axis=1>(x) }
13 (float[2,3,4] x) => (float[] y) { y = LogSoftmax<axis=0>(x) }
13 (float[2,3,1] x) => (float[] y) { y = Softmax<axis=1>(x) }
13 (float[2,3,4] x) => (float[] y) { y = Hardmax<axis=-2>(x) }
13 (float[N,C,H,W] x) => (float[] y) { y = Softmax<axis=1>(x) }
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
14 (int8[2,3] x, int8[3] z) => (int8[] y) { a = Add(x, z) b = Mul(a, x) y = Sub(b, z) }
14 (uint8[2,3] x) => (uint8[] y) <uint8 c = {2}> { y = Div(x, c) }
14 (int32[2,3] x) => (int32[] y) { y = Relu(x) }
12 (uint8[1,1,4,4] x) => (uint8[] y) { y = MaxPool<kernel_shape=[2, 2]>(x) }
12 (float[2,3] x) => (float[] y) <int64 e = {3}> { y = Pow(x, e) }
15 (int32[2,3] x, int32[2,3] e) => (int32[] y) { a = Abs(e) y = Pow(x, a) }
20 (float16[2,3] x) => (bool[] y) { y = IsInf(x) }
18 (int32[2,3] x) => (int32[] y) { y = BitwiseNot(x) }
12 (float[2,3] x, float[3] z) => (bool[] y, bool[] w) { y = GreaterOrEqual(x, z) w = LessOrEqual(x, z) }
15 (float[2,3] x, int64[1] i) => (int64[] y) { y = CastLike(x, i) }

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

# Which opset they cannot go below, and why.
REFUSED = """
"""


def lowered(model: onnx.ModelProto, to: int) -> onnx.ModelProto:
    result = ir.to_proto(brought_to(Model(ir.from_proto(model)), to).model.ir)
    check(result)
    assert list(result.graph.output) == list(model.graph.output)
    assert {entry.domain: entry.version for entry in result.opset_import} == {"": to}
    return result


def lowest(opset: int, text: str) -> int:
    """As low as the operators go that ONNX defines by no others."""
    return max([LOWEST_OPSET, *(first for op, first in FLOORS.items() if op in operators(text))])


FLOORS = {"GridSample": 16, "DFT": 17}


@pytest.mark.parametrize(("opset", "text"), graphs(LOWERED))
def test_a_lowered_node_answers_as_the_newer_one(opset: int, text: str) -> None:
    model = build(opset, text)
    fed = feeds(model)
    assert_same(run(lowered(model, lowest(opset, text)), fed), run(model, fed))
