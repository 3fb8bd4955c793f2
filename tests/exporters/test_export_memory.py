"""Memory that tf2onnx takes for the weights of a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.validate.tflite_files import write

ROOT = Path(__file__).parents[2]
# 24 MB of weights.
_PRODUCT = """
func.func @main(%x: tensor<1x2000xf32> loc("x")) -> tensor<1x3000xf32> {
  %w = arith.constant dense<0.5> : tensor<3000x2000xf32>
  %b = arith.constant dense<1.0> : tensor<3000xf32>
  %y = "tfl.fully_connected"(%x, %w, %b)
    {fused_activation_function = "NONE", keep_num_dims = false, weights_format = "DEFAULT"}
    : (tensor<1x2000xf32>, tensor<3000x2000xf32>, tensor<3000xf32>) -> tensor<1x3000xf32> loc("y")
  func.return %y : tensor<1x3000xf32>
}
"""
_PEAK = """
import resource, sys
from pathlib import Path

import tensorflow  # libraries do not count
from tf2onnx import optimizer, tfonnx

from onnxport.exporters.params import ExportParams
from onnxport.exporters.process import Host
from onnxport.exporters.sources import Source

host, params = Host(), ExportParams()
host.open(Source.of(sys.argv[1], None), params)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
host.export(Path(sys.argv[2]), None)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_no_pass_of_the_optimizer_keeps_a_copy_of_the_weights(tmp_path: Path) -> None:
    source = write(tmp_path / "product.tflite", _PRODUCT, ["x"], ["y"])
    output = tmp_path / "product.onnx"
    run = subprocess.run(
        [sys.executable, "-c", _PEAK, source, output], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # Of a few that process_tf_graph and the file need.
    assert int(run.stdout.splitlines()[-1]) < 14 * output.stat().st_size, run.stdout


@pytest.mark.exhaustive
def test_a_keras_model_of_200_mb_is_exported(tmp_path: Path) -> None:
    """TensorFlow holds several GB for it, most of them copies of its weights."""
    import keras

    layers = [keras.layers.Dense(1000, name=f"dense_{number}") for number in range(50)]
    keras.Sequential([keras.layers.Input((1000,)), *layers]).save(tmp_path / "large.keras")
    command = ("export", tmp_path / "large.keras", "-o", tmp_path / "large.onnx")
    run = subprocess.run(
        [sys.executable, "-m", "onnxport", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
