"""What the graph says about rounding."""

from __future__ import annotations

import onnx
import onnx_ir
import pytest

from fixtures import graphs, models
from onnxport.formats.model import Model
from onnxport.validate.graph_analysis import (
    accumulation_length,
    constant_outputs,
    gated_outputs,
    saturating_outputs,
)


def model(text: str, opset: int = 17) -> Model:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    return Model(onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto)))


def test_a_convolution_sums_its_kernel_over_its_channels() -> None:
    assert accumulation_length(Model(onnx_ir.from_proto(graphs.conv_relu()))) == 3 * 3 * 3


def test_the_longest_sum_counts() -> None:
    assert accumulation_length(Model(onnx_ir.from_proto(graphs.mlp()))) == 8


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("g (float[2, 6] x, float[5, 6] w) => (float[2, 5] y) { y = Gemm <transB = 1> (x, w) }", 6),
        ("g (float[2, 6] x, float[6, 5] w) => (float[2, 5] y) { y = Gemm (x, w) }", 6),
        ("g (float[N, 7, 9] x, float[9, 2] w) => (float[N, 7, 2] y) { y = MatMul (x, w) }", 9),
        ("g (float[1, 4, 8, 10] x) => (float[1, 4, 1, 1] y) { y = GlobalAveragePool (x) }", 80),
        ("g (float[2, 7] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }", 14),
        ("g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }", 1),
    ],
)
def test_lengths_of_other_sums(text: str, length: int) -> None:
    assert accumulation_length(model(text)) == length


def test_sums_inside_branches_count() -> None:
    text = """g (bool c, float[2, 6] x, float[6, 5] w) => (float[2, 5] y)
        { y = If (c) <then_branch = t () => (float[2, 5] a) { a = MatMul (x, w) },
                      else_branch = e () => (float[2, 5] b) { b = MatMul (x, w) }> }"""
    assert accumulation_length(model(text)) == 6


def test_outputs_that_hang_on_no_inputs_value() -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y, int64[2] shape, float[2] fixed, float[N, 4] z)
        <float[2] a = {1, 2}>
        { y = Relu (x) shape = Shape (x) fixed = Neg (a) z = ConstantOfShape (shape) }"""
    assert constant_outputs(model(text)) == {"shape", "fixed", "z"}


def test_outputs_of_fixed_values_and_without_elements_are_constant() -> None:
    text = """g (float[3, 3] x, float[0] none) => (float[3, 3] y, bool[3, 3] mask, float[3, 3] eye, float[0] z)
        { y, mask = Dropout (x) eye = EyeLike (x) z = Relu (none) }"""
    assert constant_outputs(model(text)) >= {"eye", "z"}
    assert "y" not in constant_outputs(model(text))


def test_an_output_that_hangs_on_an_input_through_a_condition() -> None:
    text = """g (bool c) => (float[1] y) <float[1] one = {1}, float[1] two = {2}>
        { y = If (c) <then_branch = t () => (float[1] a) { a = Identity (one) },
                      else_branch = e () => (float[1] b) { b = Identity (two) }> }"""
    assert constant_outputs(model(text)) == frozenset()


@pytest.mark.parametrize(("transform", "found"), [("LOGISTIC", {"y"}), ("SOFTMAX", set())])
def test_scores_of_a_classifier_are_a_sigmoids(transform: str, found: set[str]) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (float[N, 1] x) => (int64[N] label, float[N, 2] y) {{
        label, y = ai.onnx.ml.LinearClassifier <post_transform = "{transform}",
            coefficients: floats = [1.0, 2.0], classlabels_ints: ints = [0, 1]> (x) }}"""
    assert saturating_outputs(Model(onnx_ir.from_proto(onnx.parser.parse_model(text)))) == found


def test_saturating_outputs_are_known_through_joins_and_means() -> None:
    text = """g (float[N, 4] x) => (float[N, 8] joined, float[N, 1] mean, float[N, 4] product)
        { s = Sigmoid (x) r = Relu (x)
          joined = Concat <axis = 1> (r, s)
          mean = ReduceMean <axes = [1]> (s)
          product = Mul (s, x) }"""
    assert saturating_outputs(model(text)) == {"joined", "mean"}


def test_a_mask_keeps_the_floor_of_a_sigmoid() -> None:
    text = """g (float[N, 4] x) => (float[N, 4] kept, float[N, 4] chosen, float[N, 4] scaled)
        <float limit = {0.5}>
        { s = Sigmoid (x) k = Greater (s, limit) f = Cast <to = 1> (k)
          kept = Mul (f, s) chosen = Where (k, s, limit) scaled = Mul (s, limit) }"""
    assert saturating_outputs(model(text)) == {"kept", "chosen"}


def test_numbers_times_their_own_sigmoid_are_known() -> None:
    text = """g (float[N, 4] x, float[N, 4] z) => (float[N, 4] silu, float[4, N] quick, float[N, 4] gated)
        <float scale = {1.702}>
        { s = Sigmoid (x) silu = Mul (x, s)
          t = Mul (x, scale) u = Sigmoid (t) v = Mul (u, x) quick = Transpose (v)
          gated = Mul (z, s) }"""
    assert gated_outputs(model(text)) == {"silu", "quick"}


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "length"),
    [
        ("rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx", 2880),  # its weights are Constant nodes
        ("yunet/face_detection_yunet_2023mar.onnx", 64),
        ("silero-vad/silero_vad.onnx", 387),  # all inside an If
        ("smart-turn/smart-turn-v3.2-cpu.onnx", 1536),  # weights behind DequantizeLinear
    ],
)
def test_lengths_of_real_models(key: str, length: int) -> None:
    assert accumulation_length(Model.load(models.path(key))) == length
