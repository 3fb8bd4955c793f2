"""Every old form of an operator, lifted, gives ONNX Runtime's answers for the old one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
import onnx.version_converter
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fixtures import models
from onnxport.formats.model import Model
from onnxport.optimizers.opset import CANONICAL_OPSET, OLDEST_OPSET, LiftError, convert_opset, lift
from onnxport.optimizers.opset.node import ADAPTERS
from onnxport.optimizers.params import NEWEST_OPSET
from tests.optimizers.graphs import assert_same, build, check, feeds, graphs, inside_if, operators, run

# Opset, then the graph in ONNX's own text form. `_` is an absent input, `float[]` has no shape.
ADAPTED = """
 7 (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[] y)
     { y = BatchNormalization<epsilon=0.1>(x, s, b, m, v) }
 8 (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[] y)
     { y = BatchNormalization<spatial=1>(x, s, b, m, v) }
 7 (float[2,3,4] x, float[3,4] s, float[3,4] b, float[3,4] m, float[3,4] v) => (float[] y)
     { y = BatchNormalization<spatial=0, epsilon=0.1>(x, s, b, m, v) }
 9 (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[] y, float[] mean, float[] var)
     { y, mean, var, unread, unused = BatchNormalization<momentum=0.5>(x, s, b, m, v) }
 7 (float[2,3,4,5] x) => (float[] y) { y = MeanVarianceNormalization(x) }
 8 (float[2,3,4,5] x) => (float[] y) { y = MeanVarianceNormalization<across_channels=1>(x) }
 8 (float[2,3,4,5] x) => (float[] y) { y = MeanVarianceNormalization<normalize_variance=0>(x) }

 7 (float[1,2,3,4] x) => (float[] y) { y = Upsample<mode="nearest", scales=[1.0, 1.0, 1.7, 3.0]>(x) }
 8 (float[1,2,3,4] x) => (float[] y) { y = Upsample<mode="linear", scales=[1.0, 1.0, 2.0, 1.5]>(x) }
 9 (float[1,2,3,4] x) => (float[] y) <float[4] s = {1.0, 1.0, 2.0, 1.5}> { y = Upsample(x, s) }
 9 (float[1,2,3,4] x, float[4] grow) => (float[] y) { y = Upsample(x, grow) }
 9 (float[1,2,3,4] x, float[4] grow) => (float[] y) { y = Upsample<mode="linear">(x, grow) }
10 (float[1,2,3,4] x) => (float[] y) <float[4] s = {1.0, 1.0, 2.0, 1.5}> { y = Resize(x, s) }
10 (float[1,2,7,9] x) => (float[] y) <float[4] s = {1.0, 1.0, 0.6, 0.3}> { y = Resize(x, s) }
10 (float[1,2,7,9] x) => (float[] y) <float[4] s = {1.0, 1.0, 0.6, 1.7}> { y = Resize(x, s) }
10 (float[1,2,7,9] x) => (float[] y) <float[4] s = {1.0, 1.0, 0.6, 1.7}> { y = Resize<mode="linear">(x, s) }
10 (float[1,2,7,9] x, float[4] mixed) => (float[] y) { y = Resize(x, mixed) }
10 (float[1,2,7,9] x, float[4] mixed) => (float[] y) { y = Resize<mode="linear">(x, mixed) }
11 (float[1,2,7,9] x) => (float[] y) <float[0] none = {}, int64[4] z = {1, 2, 4, 20}>
     { y = Resize<mode="cubic">(x, none, none, z) }
11 (float[1,2,7,9] x) => (float[] y) <float[0] none = {}, float[4] s = {1.0, 1.0, 0.6, 2.3}>
     { y = Resize(x, none, s) }
11 (float[1,2,7,9] x) => (float[] y) <float[0] none = {}, float[4] s = {1.0, 1.0, 0.6, 2.3}>
     { y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor">(x, none, s) }
11 (float[1,2,7,9] x) => (float[] y) <float[0] none = {}, float[4] s = {1.0, 1.0, 0.5, 4.0}>
     { y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn">(x, none, s) }
18 (float[1,2,7,9] x) => (float[] y) <float[4] s = {1.0, 1.0, 0.6, 2.3}>
     { y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor">(x, _, s) }
12 (float[1,2,7,9] x) => (float[] y)
     <float[8] roi = {0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.9, 0.7}, float[0] none = {}, int64[4] z = {1, 2, 4, 20}>
     { y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(x, roi, none, z) }
11 (float[1,2,7,9] x, float[0] fed) => (float[] y) <int64[4] z = {1, 2, 4, 20}> { y = Resize(x, fed, fed, z) }
13 (float[1,2,7,9] x) => (float[] y) <int64[4] z = {1, 2, 4, 20}> { y = Resize<mode="linear">(x, _, _, z) }

 7 (float[4,5,6] x) => (float[] y) { y = Slice<starts=[1, -3], ends=[3, 9223372036854775807], axes=[0, 2]>(x) }
 9 (float[4,5,6] x) => (float[] y) { y = Slice<starts=[1, 0, -2], ends=[3, -1, 1000]>(x) }
 7 (float[3,8] x) => (float[] y, int64[] i) { y, i = TopK<k=3>(x) }
 9 (float[8,3] x) => (float[] y, int64[] i) { y, i = TopK<k=3, axis=0>(x) }
 7 (float[2,3] x) => (float[] y) { y = Dropout<ratio=0.3>(x) }
 7 (float[2,3] x) => (float[] y) { y, unread = Dropout<ratio=0.3>(x) }
 7 (float[2,3] x) => (float[] y, float[] m) { y, m = Dropout<ratio=0.3>(x) }
 7 (float[2,3] x) => (float[] y) { d, m = Dropout(x) y = Sub(d, m) }
10 (float[2,3] x) => (float[] y, bool[] m) { y, m = Dropout<ratio=0.3>(x) }
 7 (float[2,3] x) => (float[] y) { y = Clip<min=-0.5, max=0.25>(x) }
 7 (float[2,3] x) => (float[] y) { y = Clip<min=-0.5>(x) }
10 (float[2,3] x) => (float[] y) { y = Clip<max=0.25>(x) }
 7 (float[2,3] x) => (float[] y) { y = Clip(x) }
 7 (float16[2,3] x) => (float16[] y) { a = Abs(x) y = Clip<max=0.3>(a) }
 7 (float[2,3] x) => (float[] y) { y = Pad<pads=[0, 1, 2, 0], value=1.5>(x) }
 7 (float[4,3] x) => (float[] y) { y = Pad<pads=[0, 1, 2, 0], mode="reflect">(x) }
10 (float[4,3] x) => (float[] y) { y = Pad<pads=[-1, 1, 0, -1]>(x) }
10 (double[4,3] x) => (double[] y) { a = Abs(x) y = Pad<pads=[1, 1, 0, 0], value=0.3>(a) }
 9 (float[3,3] x, float[2,3] u) => (float[] y) <int64[2,3] i = {1, 0, 2, 0, 2, 1}> { y = Scatter(x, i, u) }
10 (float[1,5] x, float[1,2] u) => (float[] y) <int64[1,2] i = {1, 3}> { y = Scatter<axis=1>(x, i, u) }

 7 (float[2,3] x) => (float[] y) { y = Softmax(x) }
 7 (float[5] x) => (float[] y) { y = Softmax<axis=0>(x) }
 7 (float[2,3,4] x) => (float[] y) { y = Softmax(x) }
 8 (float[2,3,4] x) => (float[] y) { y = Softmax<axis=0>(x) }
 9 (float[2,3,4] x) => (float[] y) { y = Softmax<axis=2>(x) }
 9 (float[2,3,1,1] x) => (float[] y) { y = Softmax(x) }
 9 (float[2,1,3,1] x) => (float[] y) { y = Softmax(x) }
11 (float[N,C,H,W] x) => (float[] y) { y = Softmax<axis=2>(x) }
11 (float[N,C,H,W] x) => (float[] y) { y = Softmax<axis=-2>(x) }
12 (float[N,C,H,W] x) => (float[] y) { y = Softmax<axis=-1>(x) }
12 (float[N,C,H] x, int64[R] shape) => (float[] y) { r = Reshape(x, shape) y = Softmax(r) }
12 (float[2,3,4] x) => (float[] y) { a = Softmax(x) y = Softmax<axis=0>(a) }
 7 (float[2,3,4] x) => (float[] y) { y = LogSoftmax(x) }
 7 (float[2,3,4] x) => (float[] y) { y = Hardmax(x) }
11 (float[2,3,4] x) => (float[] y) { y = Hardmax<axis=0>(x) }
 7 (float[1,3,1,2] x) => (float[] y) { y = Squeeze<axes=[0, 2]>(x) }
 9 (float[1,3,1,2] x) => (float[] y) { y = Squeeze(x) }
11 (float[1,3,1,2] x) => (float[] y) { y = Squeeze<axes=[-2]>(x) }
 7 (float[3,2] x) => (float[] y) { y = Unsqueeze<axes=[0, 2]>(x) }
12 (float[3,2] x) => (float[] y) { y = Unsqueeze<axes=[-1]>(x) }
 7 (float[6,2] x) => (float[] y, float[] z) { y, z = Split<split=[2, 4]>(x) }
 7 (float[6,2] x) => (float[] y, float[] z, float[] w) { y, z, w = Split(x) }
11 (float[2,6] x) => (float[] y, float[] z) { y, z = Split<split=[1, 5], axis=-1>(x) }
13 (float[2,6] x) => (float[] y, float[] z) { y, z = Split<axis=1>(x) }
13 (float[2,6] x) => (float[] y, float[] z) <int64[2] s = {1, 5}> { y, z = Split<axis=1>(x, s) }
 7 (float[2,3,4] x) => (float[] y) { y = ReduceSum<axes=[1], keepdims=0>(x) }
11 (float[2,3,4] x) => (float[] y) { y = ReduceSum(x) }
13 (float[2,3,4] x) => (float[] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }
 7 (float[2,3,4] x) => (float[] y) { y = ReduceL1<axes=[0, 2]>(x) }
11 (float[2,3,4] x) => (float[] y) { y = ReduceL2<axes=[-1]>(x) }
17 (float[2,3,4] x) => (float[] y) { a = Abs(x) y = ReduceLogSum<axes=[1], keepdims=0>(a) }
 7 (float[2,3,4] x) => (float[] y) { y = ReduceLogSumExp<axes=[1]>(x) }
 7 (float[2,3,4] x) => (float[] y) { y = ReduceMax<axes=[1]>(x) }
17 (float[2,3,4] x) => (float[] y) { y = ReduceMean(x) }
 7 (float[2,3,4] x) => (float[] y) { y = ReduceMin<axes=[2]>(x) }
13 (float[2,3,4] x) => (float[] y) { y = ReduceProd<axes=[-2]>(x) }
 7 (float[2,3,4] x) => (float[] y) { y = ReduceSumSquare<axes=[1, 2]>(x) }

10 (float[1,1,8,8] x) => (float[] y)
     <float[2,4] r = {0.0, 0.0, 5.0, 5.0, 1.0, 2.0, 6.0, 7.0}, int64[2] i = {0, 0}>
     { y = RoiAlign<output_height=3, output_width=2>(x, r, i) }
16 (float[1,1,4,4] x, float[1,2,3,2] g) => (float[] y) { y = GridSample(x, g) }
16 (float[1,1,4,4] x, float[1,2,3,2] g) => (float[] y) { y = GridSample<mode="bilinear">(x, g) }
16 (float[1,1,4,4] x, float[1,2,3,2] g) => (float[] y) { y = GridSample<mode="bicubic">(x, g) }
16 (float[1,1,4,4] x, float[1,2,3,2] g) => (float[] y) { y = GridSample<mode="nearest">(x, g) }
17 (float[2,5,1] x) => (float[] y) { y = DFT(x) }
17 (float[2,5,4,2] x) => (float[] y) { y = DFT(x) }
17 (float[2,5,4,2] x) => (float[] y) { y = DFT<axis=2, inverse=1>(x) }
17 (float[2,5,4,1] x) => (float[] y) <int64 n = {8}> { y = DFT<onesided=1>(x, n) }
18 (float[2,6,4] x, float[2] s, float[2] b) => (float[] y) { y = GroupNormalization<num_groups=2>(x, s, b) }
20 (float[N,C,H] x, float[3] s, float[3] b) => (float[] y) { y = GroupNormalization<num_groups=3>(x, s, b) }
 8 (float[2,2] i, float[2,3,2] x) => (float[] s, float[] y)
     { s, y = Scan<num_scan_inputs=1, body = step (float[2] a, float[2] n) => (float[2] o, float[2] p)
       { o = Add(a, n) p = Mul(o, n) }>(_, i, x) }
 8 (float[2,2] i, float[2,3,2] x, float[2,3,2] z) => (float[] s, float[] y)
     { s, y = Scan<num_scan_inputs=2, directions=[1, 0],
       body = step (float[2] a, float[2] n, float[2] m) => (float[2] o, float[2] p)
       { q = Add(a, n) o = Add(q, m) p = Mul(o, n) }>(_, i, x, z) }
"""

# Old forms that are still valid, though they look as if they needed an adapter.
KEPT = """
 7 (float[1,2,7,7] x) => (float[] y) { y = AveragePool<kernel_shape=[3, 3], strides=[2, 2]>(x) }
11 (float[1,1,6,7] x) => (float[] y) { y = AveragePool<kernel_shape=[3, 3], strides=[3, 3],
       pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1>(x) }
10 (float[1,1,6,7] x) => (float[] y, int64[] i)
     { y, i = MaxPool<kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1>(x) }
 7 (float[1,1,6,7] x) => (float[] y) { y = LpPool<kernel_shape=[3, 2], auto_pad="SAME_UPPER", p=1>(x) }
 7 (float[1,1,4,5] x, float[1,2,3,3] w) => (float[] y)
     { y = ConvTranspose<strides=[2, 2], auto_pad="SAME_UPPER">(x, w) }
 7 (float[1,1,4,5] x, float[1,2,3,3] w) => (float[] y)
     { y = ConvTranspose<strides=[3, 2], output_shape=[10, 8]>(x, w) }
 9 (float[4] x) => (float[] y) <int64[4] i = {1, -1, 7, 2}, int64 d = {4}, float[2] v = {0.0, 1.0}>
     { a = OneHot(i, d, v) y = Add(a, x) }
10 (float[3,8] x) => (float[] y, int64[] i) <int64[1] k = {2}> { y, i = TopK(x, k) }
 7 (float[4,2,3] x, float[1,8,3] w, float[1,8,2] r) => (float[] y) { y = LSTM<hidden_size=2>(x, w, r) }
 7 (float[4,2,3] x, float[1,6,3] w, float[1,6,2] r) => (float[] y) { y = GRU<hidden_size=2>(x, w, r) }
 7 (float[2,3,4] x, float[3,1] s) => (float[] y) { y = PRelu(x, s) }
 7 (float[1,8,2,3] x) => (float[] y) { y = DepthToSpace<blocksize=2>(x) }
 7 (float[2,3] x) => (int64[] y) { y = ArgMax<axis=1>(x) }
10 (float[1,6,4] x, float[1,2,6] s) => (int64[] y) <int64 m = {3}, float i = {0.5}>
     { y = NonMaxSuppression(x, s, m, i) }
10 (float[2,3] x) => (float[] y) <float s = {0.02}, uint8 z = {128}>
     { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }
 9 (float[2,3] x) => (float[] y) { y = ThresholdedRelu<alpha=0.1>(x) }
13 (float[2,3] x, float[3] s, float[3] b) => (float[] y) { y = LayerNormalization(x, s, b) }
"""


# Operators without a kernel in ONNX Runtime 1.31 from opset 22 on.
UNRUN = {"RoiAlign"}

# Schema changes that need no adapter, and why.
NO_ADAPTER = {
    "new option, off by default": [
        ("ArgMax", 12, "select_last_index"),
        ("ArgMin", 12, "select_last_index"),
        ("Attention", 25, "left_window_size"),
        ("Attention", 25, "right_window_size"),
        ("AveragePool", 10, "ceil_mode"),
        ("Cast", 19, "saturate"),  # concerns float8, which came with it
        ("Cast", 24, "round_mode"),  # concerns float8e8m0, which came with it
        ("CastLike", 19, "saturate"),
        ("CastLike", 24, "round_mode"),
        ("DepthToSpace", 11, "mode"),
        ("DequantizeLinear", 21, "block_size"),
        ("DequantizeLinear", 23, "output_dtype"),
        ("GRU", 14, "layout"),
        ("GatherND", 12, "batch_dims"),
        ("LSTM", 14, "layout"),
        ("LpPool", 18, "ceil_mode"),
        ("MaxPool", 8, "storage_order"),
        ("MaxPool", 10, "ceil_mode"),
        ("QuantizeLinear", 19, "saturate"),
        ("QuantizeLinear", 21, "block_size"),
        ("QuantizeLinear", 21, "output_dtype"),
        ("QuantizeLinear", 23, "precision"),
        ("RNN", 14, "layout"),
        ("Reshape", 14, "allowzero"),
        ("Resize", 18, "antialias"),
        ("Resize", 18, "keep_aspect_ratio_policy"),
        ("ScatterElements", 16, "reduction"),
        ("ScatterND", 16, "reduction"),
        ("Shape", 15, "start"),
        ("TopK", 11, "largest"),
        ("TopK", 11, "sorted"),
    ],
    "the scale was a scalar, to which an axis says nothing": [
        ("DequantizeLinear", 13, "axis"),
        ("QuantizeLinear", 13, "axis"),
    ],
    "types that no runtime has": [("Erf", 13, "input"), ("Erf", 13, "output")],
}


def lifted(model: onnx.ModelProto, to: int = CANONICAL_OPSET) -> onnx.ModelProto:
    graph = ir.from_proto(model)
    lift(graph, to)
    result = ir.to_proto(graph)
    check(result)
    assert list(result.graph.output) == list(model.graph.output)
    assert {entry.domain: entry.version for entry in result.opset_import}[""] == to
    return result


def latest(model: onnx.ModelProto) -> onnx.ModelProto:
    """Lift a model to the newest opset at which ONNX Runtime runs it."""
    result = ir.to_proto(convert_opset(Model(ir.from_proto(model)), "latest").model.ir)
    check(result)
    found = {entry.domain: entry.version for entry in result.opset_import}[""]
    assert found == (CANONICAL_OPSET if UNRUN & {node.op_type for node in model.graph.node} else NEWEST_OPSET)
    return result


@pytest.mark.parametrize(("opset", "text"), graphs(ADAPTED, KEPT))
def test_a_lifted_node_gives_the_old_answers(opset: int, text: str) -> None:
    model = build(opset, text)
    fed = feeds(model)
    expected = run(model, fed)
    assert_same(run(lifted(model), fed), expected)
    assert_same(run(latest(model), fed), expected)


@pytest.mark.parametrize(("opset", "text"), graphs(ADAPTED))
def test_nodes_in_subgraphs_are_lifted_as_well(opset: int, text: str) -> None:
    model = inside_if(build(opset, text))
    fed = feeds(model)
    result = lifted(model)
    assert not result.graph.initializer, "a constant belongs beside the node that reads it"
    for flag in (True, False):
        fed["flag"] = np.array(flag)
        assert_same(run(result, fed), run(model, fed))


def test_every_adapter_has_a_case() -> None:
    proven = {
        (op, version)
        for row in graphs(ADAPTED)
        for op, version in ADAPTERS
        if op in operators(row.values[1]) and row.values[0] < version
    }
    assert set(ADAPTERS) == proven


def test_every_change_of_a_schema_is_adapted_or_known_to_be_harmless() -> None:
    harmless = {change for changes in NO_ADAPTER.values() for change in changes}
    found = {change for change in schema_changes() if change[:2] not in ADAPTERS}
    assert found <= harmless


def schema_changes() -> Iterator[tuple[str, int, str]]:
    """Yield operator, version and the attribute, input or output that differs from the version before."""
    schemas: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        if schema.domain == "":
            schemas.setdefault(schema.name, []).append(schema)
    for name, versions in schemas.items():
        for old, new in itertools.pairwise(versions):
            if OLDEST_OPSET < new.since_version <= NEWEST_OPSET:
                for what in differences(old, new):
                    yield name, new.since_version, what


def differences(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> Iterator[str]:
    """Return changes that could invalidate a node of the old form; more types and optional tails cannot."""
    if new.deprecated:
        yield "deprecated"
    for name in {*old.attributes, *new.attributes}:
        before, after = old.attributes.get(name), new.attributes.get(name)
        if after is None:
            yield name
        elif before is None:
            if after.required or after.default_value.name:
                yield name
        elif before.default_value != after.default_value or after.required > before.required:
            yield name
    for mine, theirs in ((old.inputs, new.inputs), (old.outputs, new.outputs)):
        for index, parameter in enumerate(mine):
            if index >= len(theirs) or parameter.types - theirs[index].types:
                yield parameter.name
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        yield from (parameter.name for parameter in theirs[len(mine) :] if parameter.option != optional)


def test_a_model_of_the_canonical_opset_is_left_as_it_is() -> None:
    model = ir.from_proto(build(CANONICAL_OPSET, "(float[2] x) => (float[] y) { y = Softmax(x) }"))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    assert lift(model) == []
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_rewritten_operators_are_named_as_in_the_model() -> None:
    text = """(float[1,2,3,4] x) => (float[] y) {
        a = Upsample<mode="nearest", scales=[1.0, 1.0, 2.0, 2.0]>(x)
        b = Relu(a) c = Softmax<axis=-1>(b) d = Unsqueeze<axes=[0]>(c) y = Unsqueeze<axes=[0]>(d) }"""
    assert lift(ir.from_proto(build(8, text))) == ["Softmax", "Unsqueeze", "Upsample"]


@pytest.mark.parametrize(
    ("opset", "text", "expected"),
    [
        (9, "(float[N,C] x) => (float[] y) { y = Softmax(x) }", ["Softmax"]),
        (9, "(float[N,C,1,1] x) => (float[] y) { y = Softmax(x) }", ["Softmax"]),
        (9, "(float[N,1,L] x) => (float[] y) { y = Softmax(x) }", ["Softmax"]),
        (9, "(float[N,C,L] x) => (float[] y) { y = Softmax(x) }", ["Shape", "Flatten", "Softmax", "Reshape"]),
        (
            9,
            "(float[N,C,L] x) => (float[] y) { a = Softmax(x) y = Softmax<axis=2>(a) }",
            ["Shape", "Flatten", "Softmax", "Reshape", "Softmax"],
        ),
        (9, "(float[N,C] x, float[2] s) => (float[] y) { y = Upsample(x, s) }", ["Resize"]),
        (10, "(float[N,C] x) => (float[] y) <float[2] s = {1.0, 0.5}> { y = Resize(x, s) }", ["Resize"]),
        (9, "(float[N,C] x) => (float[] y) { y, unread = Dropout(x) }", ["Dropout"]),
    ],
)
def test_no_more_nodes_than_needed(opset: int, text: str, expected: list[str]) -> None:
    assert [node.op_type for node in lifted(build(opset, text)).graph.node] == expected


@pytest.mark.parametrize(("opset", "to"), [(11, 13), (11, 21), (13, 21), (18, 21)])
def test_the_nearest_neighbour_of_tensorflow_is_half_pixel(opset: int, to: int) -> None:
    text = """(float[2,3] x) => (float[] y) <float[0] none = {}, float[2] s = {1.0, 2.0}>
        { y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor">(x, none, s) }"""
    (node,) = lifted(build(opset, text), to).graph.node
    assert {a.name: a.s for a in node.attribute} == {
        "coordinate_transformation_mode": b"half_pixel",
        "nearest_mode": b"round_prefer_ceil",
    }


def test_empty_inputs_of_resize_leave_no_constant_behind() -> None:
    text = """(float[1,2] x) => (float[] y) <float[0] none = {}, int64[2] z = {2, 4}>
        { y = Resize(x, none, none, z) }"""
    model = lifted(build(11, text))
    assert list(model.graph.node[0].input) == ["x", "", "", "z"]
    assert [tensor.name for tensor in model.graph.initializer] == ["z"]


def test_an_ineffective_bound_is_left_out() -> None:
    text = "(float[2] x) => (float[] y) { a = Clip<min=0.0>(x) y = Clip<min=0.0, max=3.4028234663852886e+38>(a) }"
    assert [len(node.input) for node in lifted(build(9, text)).graph.node] == [2, 2]


def test_an_initializer_that_may_be_overridden_is_no_constant() -> None:
    text = "(float[1,1,7,9] x, float[4] mixed) => (float[] y) <float[4] mixed = {1.0, 1.0, 2.0, 2.0}>"
    model = build(10, text + " { y = Resize(x, mixed) }")
    fed = feeds(model)
    assert_same(run(lifted(model), fed), run(model, fed))


def test_declared_shapes_of_intermediates_are_ignored() -> None:
    model = build(9, "(float[2,3,4] x) => (float[] y) { a = Abs(x) y = Softmax(a) }")
    fed = feeds(model)
    expected = run(model, fed)
    lie = onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2, 3, 1])
    model.graph.value_info.append(lie)
    graph = ir.from_proto(model)
    lift(graph)
    result = ir.to_proto(graph)
    del result.graph.value_info[:]
    assert_same(run(result, fed), expected)


def test_a_value_of_unknown_type_gets_bounds_of_its_type() -> None:
    model = build(10, "(float16[2,3] x) => (float16[] y) { a = Custom(x) y = Clip<max=0.3>(a) }")
    model.graph.node[0].domain = "some.vendor"
    model.opset_import.add(domain="some.vendor", version=1)
    graph = ir.from_proto(model)
    lift(graph)
    cast = graph.graph.node("y_CastLike")
    assert [value and value.name for value in cast.inputs] == ["y_constant", "a"]
    with pytest.raises(LiftError, match="the type of its input 'a' is not known"):
        lift(ir.from_proto(model), 13)


def test_names_of_values_stay_and_new_ones_are_free() -> None:
    text = """(float[2,3,4] x, float[1] y_constant) => (float[] y, float[] z)
        { y_Shape = Abs(x) y = Softmax(y_Shape) s = Clip<min=0.0>(y) z = Add(s, y_constant) }"""
    model = build(9, text)
    names = [name for node in model.graph.node for name in node.output]
    result = lifted(model)
    found = [name for node in result.graph.node for name in node.output]
    assert set(names) <= set(found)
    assert len(set(found)) == len(found)
    assert [value.name for value in result.graph.output] == ["y", "z"]


def test_weights_are_never_read() -> None:
    read = []

    def weight() -> ir.TensorProtocol:
        read.append("w")
        return ir.tensor(np.zeros(1000, np.float32))

    text = "(float[1000] x) => (float[] y) <float[1] w = {0.0}> { a = Mul(x, w) y = Clip<min=0.0>(a) }"
    model = ir.from_proto(build(9, text))
    tensor = ir.LazyTensor(weight, dtype=ir.DataType.FLOAT, shape=ir.Shape([1000]), name="w")
    value = model.graph.initializers["w"]
    value.const_value, value.shape = tensor, ir.Shape([1000])
    assert lift(model) == ["Clip"]
    assert [node.op_type for node in model.graph] == ["Mul", "Clip"]
    assert value.const_value is tensor
    assert not read


def test_constants_that_ir_3_lists_as_inputs_stay_constants() -> None:
    model = build(
        9, "(float[2,3] x, float[3] w) => (float[] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add(x, w) }"
    )
    model.ir_version = 3
    result = lifted(model)
    assert result.ir_version == 10
    assert [value.name for value in result.graph.input] == ["x"]


def test_ai_onnx_is_the_default_domain() -> None:
    model = build(9, "(float[2,3] x) => (float[] y) { y = Unsqueeze<axes=[0]>(x) }")
    model.opset_import[0].domain = "ai.onnx"
    result = lifted(model)
    assert [(entry.domain, entry.version) for entry in result.opset_import] == [("", CANONICAL_OPSET)]


@pytest.mark.parametrize("to", range(8, CANONICAL_OPSET))
def test_a_lift_reaches_every_opset_in_between(to: int) -> None:
    text = """(float[2,3,4,5] x) => (float[] y) {
        a = Clip<min=-1.0>(x) b = Upsample<mode="nearest", scales=[1.0, 1.0, 2.0, 1.5]>(a)
        c = Softmax(b) d = ReduceMean<axes=[1], keepdims=0>(c) y = ReduceSum<axes=[1]>(d) }"""
    model = build(7, text)
    fed = feeds(model)
    assert_same(run(lifted(model, to), fed), run(model, fed))


def test_all_nodes_that_cannot_be_lifted_are_named_at_once() -> None:
    text = """(float[2,3] x, float[3] s, int64[1] n) => (float[] y, float[] m, float[] v, float[] w) {
        a = ImageScaler(x) b = Gelu(a) y, e, f, m, v = BatchNormalization(b, s, s, s, s)
        w = Clip<min=0.0>(x) }"""
    model = build(9, text)
    model.graph.node[2].name = "norm"
    with pytest.raises(LiftError, match="3 of 4 nodes cannot be lifted from opset 9 to 21") as caught:
        lift(ir.from_proto(model))
    assert [(refusal.op, refusal.node) for refusal in caught.value.refusals] == [
        ("ImageScaler", "a"),
        ("Gelu", "b"),
        ("BatchNormalization", "norm"),
    ]


@pytest.mark.parametrize(
    ("opset", "text", "why"),
    [
        (
            8,
            """(float[2,3,4] x, float[3,4] s) => (float[] y, float[] m)
               { y, a, b, m, c = BatchNormalization<spatial=0>(x, s, s, s, s) }""",
            "spatial=0",
        ),
        (
            8,
            """(float[2,3,4] x, float[3] s) => (float[] y, float[] c)
               { y, m, v, b, c = BatchNormalization(x, s, s, s, s) }""",
            "saved_mean and saved_var",
        ),
        (
            8,
            """(float[2,3] i, int64[2] n, float[2,3,3] x) => (float[] s) { s = Scan<num_scan_inputs=1,
               body = step (float[3] a, float[3] b) => (float[3] c) { c = Add(a, b) }>(n, i, x) }""",
            "sequence_lens",
        ),
        (
            11,
            """(float[2,3] x) => (float[] y) <float[0] none = {}, float[2] s = {1.0, 2.0}> { y = Resize
               <coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="ceil">(x, none, s) }""",
            "tf_half_pixel",
        ),
        (9, "(float[2,3] x) => (float[] y, int64[] i) { y, i = TopK(x) }", "attribute 'k' is missing"),
    ],
)
def test_a_node_without_a_newer_form_is_refused(opset: int, text: str, why: str) -> None:
    with pytest.raises(LiftError, match=why):
        lift(ir.from_proto(build(opset, text)))


# ONNX's own tests, with the least number of opset 6 to 20 that ONNX Runtime answers.
STORED = {"node": 850, "simple": 15, "pytorch-converted": 75, "pytorch-operator": 25}


@pytest.mark.parametrize("collection", STORED)
def test_onnx_own_tests_give_the_same_answers_when_lifted(collection: str) -> None:
    folder = models.onnx_tests(collection)
    compared, wrong = 0, []
    for path in sorted(folder.glob("*/model.onnx")):
        model = onnx.load(path)
        opset = next((entry.version for entry in model.opset_import if entry.domain == ""), CANONICAL_OPSET)
        if opset >= CANONICAL_OPSET or opset < OLDEST_OPSET - 1:
            continue
        if opset < OLDEST_OPSET:  # what the exporters of 2018 wrote; ONNX knows the way to 7
            model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
        try:
            compared += compare(model, path.parent)
        except Exception as error:
            wrong.append(f"{path.parent.name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    assert compared >= STORED[collection]


def compare(model: onnx.ModelProto, folder: Path) -> bool:
    """Lift the model and check its answers; return False if ONNX Runtime has none for the old one."""
    graph = ir.from_proto(model)
    lift(graph)
    result = ir.to_proto(graph)
    for data in sorted(folder.glob("test_data_set_*")):
        fed = stored_inputs(model, data)
        try:
            expected = run(model, fed)
        except Exception:  # ONNX Runtime's own errors have no common class
            return False
        assert_same(run(result, fed), expected)
    return True


def stored_inputs(model: onnx.ModelProto, data: Path) -> dict[str, Any]:
    fed = {}
    for index, value in enumerate(model.graph.input):
        file = data / f"input_{index}.pb"
        if file.exists():
            fed[value.name] = _read(file, value.type)
    return fed


def _read(file: Path, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(file.read_bytes()))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(file.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes()))
