"""Constants among a Loop's states become values that the body reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxport
from onnxport.formats.model import Model
from onnxport.optimizers.loop_constants import capture_constants

RECURRENT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 64] x) => (float[1, 64] y, float[n, 1, 64] s) {
    count = Constant <value = int64 {3}> ()
    on = Constant <value = bool {1}> ()
    y, w2, b2, s = Loop (count, on, x, w, b)
        <body = body (int64 i, bool c, float[1, 64] h, float[64, 64] v, float[1, 64] a)
        => (bool d, float[1, 64] k, float[64, 64] v2, float[1, 64] a2, float[1, 64] t) {
        d = Identity (c) m = MatMul (h, v) n = Add (m, a) k = Tanh (n)
        v2 = Identity (v) a2 = RETURNED t = Neg (k)
    }>
}"""


def save(path: Path, returned: str) -> Path:
    proto = onnx.parser.parse_model(RECURRENT.replace("RETURNED", returned))
    rng = np.random.default_rng(1)
    for name, shape in (("w", (64, 64)), ("b", (1, 64))):
        array = 0.2 * rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize(("returned", "captured"), [("Identity (a)", 2), ("Neg (a)", 1)])
def test_states_that_stay_constant_are_no_states(returned: str, captured: int, tmp_path: Path) -> None:
    source = save(tmp_path / "loop.onnx", returned)
    model = Model.load(source)
    assert capture_constants(model) == captured
    (loop,) = (node for node in model.graph if node.op_type == "Loop")
    assert len(loop.inputs) == 5 - captured
    made = model.save(tmp_path / "made.onnx").path
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 64)).astype(np.float32)}
    own, other = (onnxruntime.InferenceSession(path).run(["y", "s"], feeds) for path in (source, made))
    np.testing.assert_allclose(own[0], other[0], atol=1e-5)
    np.testing.assert_allclose(own[1], other[1], atol=1e-5)


def test_a_state_that_an_output_answers_stays_one(tmp_path: Path) -> None:
    source = save(tmp_path / "loop.onnx", "Identity (a)")
    proto = onnx.load(source)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("w2", 1, [64, 64]))
    onnx.save(proto, source)
    assert capture_constants(Model.load(source)) == 1


def test_a_tflite_file_holds_a_loops_weights_once(tmp_path: Path) -> None:
    source = save(tmp_path / "loop.onnx", "Identity (a)")
    made = onnxport.convert_model(source, "tflite", tmp_path / "loop.tflite").path
    assert made.stat().st_size < source.stat().st_size + 10_000
