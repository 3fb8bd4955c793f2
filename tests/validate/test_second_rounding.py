"""Integers that are rounded once more: a right file is proven node for node, a weight one step off is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

import onnxport
from onnxport.converters.params import Precision

# A product of integers and one of floats, as quantizers leave them that were told to exclude a layer.
TAIL = "b = Relu (a) y = MatMul (b, v) }"
KINDS = {
    "dynamic": f"""{{ xc, xs, xz = DynamicQuantizeLinear (x) p = MatMulInteger (xc, w, xz, wz) f = Cast <to = 1> (p)
        s = Mul (xs, ws) a = Mul (f, s) {TAIL}""",
    "weights": f"{{ wf = DequantizeLinear (w, ws, wz) a = MatMul (x, wf) {TAIL}",
}


def network(kind: str, path: Path, step: float = 0.0) -> Path:
    """Write the network; `step` moves one float weight by that many steps of its column's grid of 8 bits."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float[3, 64] x) => (float[3, 40] y) {KINDS[kind]}'
    )
    v = random.standard_normal((48, 40)).astype(np.float32)
    v[5, 7] = 0.1
    v[5, 7] += step * np.abs(v[:, 7]).max() / 127
    arrays = {
        "w": random.integers(-127, 128, (64, 48)).astype(np.int8),
        "ws": np.float32(0.01),
        "wz": np.int8(3),
        "v": v,
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    onnx.save(model, path)
    return path


def run(path: Path, x: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.parametrize(
    ("kind", "precision"),
    [("dynamic", "int8-weights"), ("dynamic", "int8-dynamic"), ("weights", "int8-weights")],
)
def test_a_second_rounding_is_proven_and_a_weight_one_step_off_is_found(
    kind: str, precision: Precision, tmp_path: Path
) -> None:
    source = network(kind, tmp_path / "net.onnx")
    right = onnxport.convert_model(
        source, "tflite", output=tmp_path / "net.tflite", precision=precision, latency=False
    )
    assert right.report.verdict == "proven"
    assert any("each weight within half a step" in note for note in right.report.notes)
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    held = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(source).graph.initializer}
    expected = np.maximum(x @ ((held["w"].astype(np.float32) - 3) * 0.01), 0) @ held["v"]
    assert np.abs(run(tmp_path / "net.tflite", x) - expected).max() < 0.03 * np.abs(expected).max()

    other = network(kind, tmp_path / "other.onnx", step=1.0)
    onnxport.convert_model(
        other, "tflite", output=tmp_path / "wrong.tflite", precision=precision, latency=False
    )
    assert onnxport.validate_model(source, tmp_path / "wrong.tflite").verdict == "not equivalent"
