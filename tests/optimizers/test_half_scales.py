"""Values beyond float16 that weights around them can take up: powers of two, exact in float32."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from onnxport.optimizers.float16.scales import fold_scales

# Between x and y there are values up to 1e6; r is random, up to 1.
NETWORKS = {
    "convolutions": """g (float[1,2,8,8] x) => (float[1,2,4,4] y) {
        a = Conv <pads = [1,1,1,1]> (x, large, b) c = LeakyRelu (a)
        d = MaxPool <kernel_shape = [2,2], strides = [2,2]> (c)
        y = Conv <pads = [1,1,1,1]> (d, small, b) }""",
    "two branches": """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        a = Conv <pads = [1,1,1,1]> (x, large, b) c = Relu (a) d = Conv <pads = [1,1,1,1]> (x, large)
        e = Add (c, d) f = Add (e, big) z = Mul (f, tiny) w = Conv <pads = [1,1,1,1]> (f, small) y = Add (z, w) }""",
    "two regions around one convolution": """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        a = Conv <pads = [1,1,1,1]> (x, large, b) c = Relu (a) d = Conv <pads = [1,1,1,1]> (c, small, b)
        e = Conv <pads = [1,1,1,1]> (d, large, b) y = Mul (e, tiny) }""",
    "a factor between": """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        a = Mul (x, big) c = Mul (a, half) d = Add (a, c) y = Div (d, big) }""",
}
# Where the factor would reach what does not take it.
OTHERS = {
    "an output": "g (float[1,2,8,8] x) => (float[1,2,8,8] y) { y = Mul (x, big) }",
    "an exponential": """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        a = Mul (x, big) c = Sigmoid (a) d = Mul (a, tiny) y = Add (c, d) }""",
    "a slope": """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        a = Mul (x, big) c = PRelu (x, a) y = Mul (c, tiny) }""",
    "a weight that would be too large": """g (float[1,2,8,8] x) => (float[1,2,8,8] y) {
        a = Mul (x, big) c = Mul (a, thousands) d = ReduceMax (c) y = Div (x, d) }""",
}


def network(text: str) -> onnx_ir.Model:
    rng = np.random.default_rng(0)
    weights = {
        "large": rng.standard_normal((2, 2, 3, 3)) * 1e5,
        "small": rng.standard_normal((2, 2, 3, 3)) * 1e-5,
        "b": rng.standard_normal(2),
        "big": np.array(1e6),
        "tiny": np.array(1e-3),
        "half": np.array(0.5),
        "thousands": np.array(3e4),
    }
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, array in weights.items():
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return onnx_ir.from_proto(model)


def run(model: onnx_ir.Model, names: list[str]) -> dict[str, np.ndarray]:
    """Run a model without optimizations, which would join nodes; `names` are outputs or values inside."""
    proto = onnx_ir.to_proto(model)
    kept = {each.name for each in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in kept)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    x = np.random.default_rng(1).standard_normal((1, 2, 8, 8)).astype(np.float32)
    return dict(zip(names, session.run(names, {"x": x}), strict=True))


def peaks(model: onnx_ir.Model) -> dict[str, float]:
    names = [each.name for node in model.graph for each in node.outputs]
    return {name: float(np.abs(array).max()) for name, array in run(model, names).items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_values_fit_and_answers_stay_bit_for_bit(name: str) -> None:
    model = network(NETWORKS[name])
    before, answer = peaks(model), run(model, ["y"])["y"]
    assert max(before.values()) > 65504
    folded = fold_scales(model, before)
    assert set(folded) == {each for each, peak in before.items() if peak > 65504 / 2}
    assert max(peaks(model).values()) < 65504 / 4
    np.testing.assert_array_equal(run(model, ["y"])["y"], answer)


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_take_a_factor_keeps_the_model_as_it_is(name: str) -> None:
    model = network(OTHERS[name])
    before = onnx_ir.to_proto(model).SerializeToString()
    assert fold_scales(model, peaks(model)) == ()
    assert onnx_ir.to_proto(model).SerializeToString() == before
