"""Forms of TFLite files that tf2onnx does not convert right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxport.exporters.params import ExportParams
from onnxport.exporters.process import Host
from onnxport.exporters.sources import Source
from tests.validate.tflite_files import write

# TFLite's own converter drops the Reshape in front of a dense layer: the operator flattens its input itself.
_HEADS = """
func.func @main(%x: tensor<{batch}x2x2x2xf32> loc("x")) -> (tensor<{batch}x3xf32>, tensor<{batch}x3xf32>) {{
  %w = arith.constant dense<{weights}> : tensor<3x8xf32>
  %b = arith.constant dense<{bias}> : tensor<3xf32>
  %y = "tfl.fully_connected"(%x, %w, %b)
    {{fused_activation_function = "NONE", keep_num_dims = false, weights_format = "DEFAULT"}}
    : (tensor<{batch}x2x2x2xf32>, tensor<3x8xf32>, tensor<3xf32>) -> tensor<{batch}x3xf32> loc("y")
  %z = "tfl.fully_connected"(%x, %w, %b)
    {{fused_activation_function = "RELU", keep_num_dims = false, weights_format = "DEFAULT"}}
    : (tensor<{batch}x2x2x2xf32>, tensor<3x8xf32>, tensor<3xf32>) -> tensor<{batch}x3xf32> loc("z")
  func.return %y, %z : tensor<{batch}x3xf32>, tensor<{batch}x3xf32>
}}
"""


@pytest.mark.parametrize("batch", ["1", "?"])
def test_a_dense_layer_that_flattens_its_input_keeps_its_bias(tmp_path: Path, batch: str) -> None:
    rng = np.random.default_rng(0)
    weights, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8), (3,)))
    text = _HEADS.format(batch=batch, weights=weights.tolist(), bias=bias.tolist())
    source = write(tmp_path / "heads.tflite", text, ["x"], ["y", "z"])
    host, params, output = Host(), ExportParams(), tmp_path / "heads.onnx"
    host.open(Source.of(str(source), None), params)
    host.export(output, None)
    x = rng.standard_normal((1 if batch == "1" else 4, 2, 2, 2)).astype(np.float32)
    y, z = onnxruntime.InferenceSession(output).run(["y", "z"], {"x": x})
    expected = x.reshape(-1, 8) @ weights.T + bias
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z, np.maximum(expected, 0), rtol=1e-5, atol=1e-6)


# Padding SAME and strides of 2, as MediaPipe's selfie segmentation has them.
_UPSAMPLING = """
func.func @main(%x: tensor<1x3x4x2xf32> loc("x")) -> tensor<1x6x8x3xf32> {{
  %w = arith.constant dense<{weights}> : tensor<3x2x2x2xf32>
  %b = arith.constant dense<{bias}> : tensor<3xf32>
  %y = "tfl.custom"(%x, %w, %b)
    {{custom_code = "Convolution2DTransposeBias",
      custom_option = #tfl<const_bytes : "0x010000000200000002000000">}}
    : (tensor<1x3x4x2xf32>, tensor<3x2x2x2xf32>, tensor<3xf32>) -> tensor<1x6x8x3xf32> loc("y")
  func.return %y : tensor<1x6x8x3xf32>
}}
"""


def test_the_transposed_convolution_of_mediapipe_is_exported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 2, 2, 2), (3,)))
    text = _UPSAMPLING.format(weights=weights.tolist(), bias=bias.tolist())
    source = write(tmp_path / "upsampling.tflite", text, ["x"], ["y"])
    host, params, output = Host(), ExportParams(), tmp_path / "upsampling.onnx"
    described = host.open(Source.of(str(source), None), params)
    host.export(output, None)
    x = rng.standard_normal((1, 3, 4, 2)).astype(np.float32)
    (y,) = onnxruntime.InferenceSession(output).run(["y"], {"x": x})
    # Windows of the size of the stride do not overlap.
    blocks = np.einsum("nhwc,oabc->nhawbo", x, weights)
    np.testing.assert_allclose(y, blocks.reshape(1, 6, 8, 3) + bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(host.run({"x": x}, False)["y"], y, rtol=1e-5, atol=1e-6)
    assert not described.has_other_kernels
