"""What an artefact computes in, told by its file: models of other hands than ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fixtures import graphs, models
from onnxport.formats.artifact import Artifact
from onnxport.validate.precision import kept_float32, precision_of
from onnxport.validate.report import Precision
from tests.validate import lower, tflite_files


def told(model: onnx.ModelProto, path: Path) -> Precision:
    onnx.save(model, path)
    return precision_of(Artifact.open(path))


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]> {text}'
    )


def inputs(count: int = 4) -> list[dict[str, Any]]:
    return [{"x": np.random.default_rng(n).standard_normal((1, 6)).astype(np.float32)} for n in range(count)]


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.onnx"
    onnx.save(graphs.mlp(), path)
    return path


@pytest.mark.parametrize(
    ("body", "precision"),
    [
        ("y = MatMul(x, x)", "float32"),
        ("h = Cast<to = 10>(x) p = MatMul(h, h) y = Cast<to = 1>(p)", "float16"),
        ("h = Cast<to = 16>(x) p = MatMul(h, h) y = Cast<to = 1>(p)", "bfloat16"),
        ("h = Cast<to = 11>(x) p = MatMul(h, h) y = Cast<to = 1>(p)", "float64"),
        # Rounded after every node by Casts, as machines without float16 kernels run it.
        ("p = MatMul(x, x) h = Cast<to = 10>(p) w = Cast<to = 1>(h) q = MatMul(w, w) "
         "g = Cast<to = 10>(q) y = Cast<to = 1>(g)", "float16"),
        ("n = Cast<to = 7>(x) y = Cast<to = 1>(n)", "unknown"),
    ],
)  # fmt: skip
def test_the_arithmetic_decides_a_float_precision(body: str, precision: Precision, tmp_path: Path) -> None:
    assert (
        told(parsed(f"g (float[4, 4] x) => (float[4, 4] y) {{ {body} }}"), tmp_path / "m.onnx") == precision
    )


def test_float16_weights_differ_from_float16_arithmetic(tmp_path: Path) -> None:
    assert told(graphs.mlp(), tmp_path / "a.onnx") == "float32"
    assert told(lower.half_weights(graphs.mlp()), tmp_path / "b.onnx") == "float16 weights"
    assert told(lower.half(graphs.mlp()), tmp_path / "c.onnx") == "float16"


def test_stored_integers_decide_a_weight_only_precision(tmp_path: Path) -> None:
    def weight_only(dtype: str) -> onnx.ModelProto:
        weights = f"<{dtype}[4, 8] w = {{{', '.join(['1'] * 32)}}}, float s = {{0.1}}>"
        return parsed(
            f"g (float[N, 4] x) => (float[N, 8] y) {weights} {{ d = DequantizeLinear(w, s) y = MatMul(x, d) }}"
        )

    assert told(weight_only("int8"), tmp_path / "a.onnx") == "int8 weights"
    assert told(weight_only("int4"), tmp_path / "b.onnx") == "int4 weights"


@pytest.mark.parametrize(
    "body",
    [
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, d)",
        "q = QuantizeLinear<output_dtype = 17>(x, s) d = DequantizeLinear(q, s) y = MatMul(d, d)",
        "d = DequantizeLinear(w, s) y = MatMul(x, d)",
        "p = MatMul(x, x) q = Cast<to = 19>(p) y = Cast<to = 1>(q)",
    ],
)
def test_a_model_in_float8_is_not_called_int8(body: str, tmp_path: Path) -> None:
    weights = (
        f"<float8e4m3fn[4, 4] w = {{{', '.join(['1'] * 16)}}}, float8e4m3fn z = {{0}}, float s = {{0.1}}>"
    )
    assert (
        told(parsed(f"g (float[4, 4] x) => (float[4, 4] y) {weights} {{ {body} }}"), tmp_path / "m.onnx")
        == "mixed"
    )


@pytest.mark.parametrize(("bits", "precision"), [(4, "int4 weights"), (8, "int8 weights")])
def test_block_quantized_products_are_weight_only(bits: int, precision: Precision, tmp_path: Path) -> None:
    size = 32 * bits // 8
    nodes = [
        helper.make_node(
            "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=32, N=8, bits=bits, block_size=32
        )
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [
            helper.make_tensor("w", TensorProto.UINT8, [8, 1, size], bytes(8 * size), raw=True),
            helper.make_tensor("s", TensorProto.FLOAT, [8], [0.1] * 8),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    assert (
        told(helper.make_model(graph, ir_version=9, opset_imports=opsets), tmp_path / "m.onnx") == precision
    )


def test_activations_decide_a_static_precision(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType

    made = lower.static(graphs.mlp(), inputs(), tmp_path / "int8.onnx")
    wide = lower.static(graphs.mlp(), inputs(), tmp_path / "wide.onnx", activation_type=QuantType.QInt16)
    fused = lower.static(
        graphs.conv_relu(),
        [{"x": np.zeros((1, 3, 8, 10), np.float32)}],
        tmp_path / "fused.onnx",
        quant_format=QuantFormat.QOperator,
    )
    assert precision_of(Artifact.open(made)) == "int8"
    assert precision_of(Artifact.open(wide)) == "int16x8"
    assert precision_of(Artifact.open(fused)) == "int8"


def test_scales_that_are_measured_at_run_time_are_dynamic(mlp: Path, tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(mlp, tmp_path / "dynamic.onnx")
    assert precision_of(Artifact.open(tmp_path / "dynamic.onnx")) == "int8 dynamic"


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_EXTENDED"])
def test_an_ort_file_has_the_precision_of_its_model(mlp: Path, level: str, tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(mlp, tmp_path / "dynamic.onnx")
    onnx.save(lower.half(graphs.mlp()), tmp_path / "half.onnx")
    made = {
        "float32": mlp,
        "int8": lower.static(graphs.mlp(), inputs(), tmp_path / "int8.onnx"),
        "int8 dynamic": tmp_path / "dynamic.onnx",
        # Without kernels for float16 it computes in float32 and rounds at the borders alone.
        "float16 weights": tmp_path / "half.onnx",
    }
    found = {
        name: precision_of(Artifact.open(lower.as_ort(path, tmp_path / "m.ort", level)))
        for name, path in made.items()
    }
    assert found == {name: name for name in made}


PRODUCT = """
func.func @main(%x: tensor<2x16xf32> loc("x")) -> tensor<2x16xf32> {
  %w = arith.constant dense<0.5> : tensor<16x16xf32>
  %b = arith.constant dense<0.5> : tensor<16xf32>
  %y = "tfl.fully_connected"(%x, %w, %b)
    {fused_activation_function = "NONE", keep_num_dims = false, weights_format = "DEFAULT"}
    : (tensor<2x16xf32>, tensor<16x16xf32>, tensor<16xf32>) -> tensor<2x16xf32> loc("y")
  func.return %y : tensor<2x16xf32>
}
"""
QUANTIZED = """
func.func @main(%x: tensor<2x16xf32> loc("x")) -> tensor<2x16xf32> {
  %q = "tfl.quantize"(%x) {qtype = tensor<2x16x!quant.uniform<i8:f32, 0.1>>}
    : (tensor<2x16xf32>) -> tensor<2x16x!quant.uniform<i8:f32, 0.1>> loc("q")
  %t = "tfl.add"(%q, %q) {fused_activation_function = "NONE"}
    : (tensor<2x16x!quant.uniform<i8:f32, 0.1>>, tensor<2x16x!quant.uniform<i8:f32, 0.1>>)
    -> tensor<2x16x!quant.uniform<i8:f32, 0.2>> loc("t")
  %y = "tfl.dequantize"(%t) : (tensor<2x16x!quant.uniform<i8:f32, 0.2>>) -> tensor<2x16xf32> loc("y")
  func.return %y : tensor<2x16xf32>
}
"""
HYBRID = """
func.func @main(%x: tensor<2x16xf32> loc("x")) -> tensor<2x16xf32> {
  %w = "tfl.pseudo_qconst"() {qtype = tensor<16x16x!quant.uniform<i8:f32, 0.1>>, value = dense<3> : tensor<16x16xi8>}
    : () -> tensor<16x16x!quant.uniform<i8:f32, 0.1>>
  %b = arith.constant dense<0.5> : tensor<16xf32>
  %y = "tfl.fully_connected"(%x, %w, %b)
    {fused_activation_function = "NONE", keep_num_dims = false, weights_format = "DEFAULT"}
    : (tensor<2x16xf32>, tensor<16x16x!quant.uniform<i8:f32, 0.1>>, tensor<16xf32>) -> tensor<2x16xf32> loc("y")
  func.return %y : tensor<2x16xf32>
}
"""


@pytest.mark.parametrize(
    ("text", "precision"), [(PRODUCT, "float32"), (QUANTIZED, "int8"), (HYBRID, "int8 dynamic")]
)
def test_tensors_decide_the_precision_of_a_tflite_file(
    text: str, precision: Precision, tmp_path: Path
) -> None:
    path = tflite_files.write(tmp_path / "m.tflite", text, ("x",), ("y",))
    assert precision_of(Artifact.open(path)) == precision


def test_a_tflite_file_with_float16_constants_has_float16_weights(tmp_path: Path) -> None:
    path = tflite_files.write(tmp_path / "a.tflite", PRODUCT, ("x",), ("y",))
    assert precision_of(Artifact.open(lower.half_tflite(path, tmp_path / "b.tflite"))) == "float16 weights"


@pytest.mark.real
@pytest.mark.parametrize(
    ("key", "precision"),
    [
        ("smart-turn/smart-turn-v3.2-cpu.onnx", "int8"),
        ("minilm-int8/model.onnx", "int8 weights"),
        ("silero-vad/silero_vad_half.onnx", "float32"),  # half of the model, not half precision
        ("magika/model.onnx", "float32"),
        ("synheart-trees/ExtraTrees_120_60_nozipmap.onnx", "float32"),
    ],
)
def test_real_models(key: str, precision: Precision) -> None:
    assert precision_of(Artifact.open(models.path(key))) == precision


@pytest.mark.parametrize("filling", [b"\x00", b"\x7f", b"\x80", b"\xf0", b"\xff"])
def test_damage_that_the_runtime_does_not_see_is_no_bug(filling: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.tflite"
    path.write_bytes(b"\x10\x00\x00\x00TFL3" + filling * 400)
    assert precision_of(Artifact(path, "tflite")) == "unknown"


def test_weights_stored_in_bfloat16(tmp_path: Path) -> None:
    weights = f"<bfloat16[4, 8] w = {{{', '.join(['1'] * 32)}}}>"
    stored = f"g (float[N, 4] x) => (float[N, 8] y) {weights} {{ d = Cast<to = 1>(w) y = MatMul(x, d) }}"
    assert told(parsed(stored), tmp_path / "a.onnx") == "bfloat16 weights"


def test_types_show_what_a_float16_graph_holds_in_float32(tmp_path: Path) -> None:
    """A Cast of what is float16 is a border, not an island; a Cast of integers is one."""
    body = (
        "h = Cast<to = 10>(x) p = MatMul(h, h) wide = Cast<to = 1>(p) island = Exp(wide) n = Cast<to = 6>(x) "
        "number = Cast<to = 1>(n) sum = Add(island, number) back = Cast<to = 10>(sum) q = MatMul(back, back) "
        "y = Cast<to = 1>(q)"
    )
    path = tmp_path / "m.onnx"
    onnx.save(parsed(f"g (float[4, 4] x) => (float[4, 4] y) {{ {body} }}"), path)
    assert kept_float32(Artifact.open(path)) == {"island", "number", "sum"}
    onnx.save(graphs.mlp(), path)
    assert kept_float32(Artifact.open(path)) == frozenset()
