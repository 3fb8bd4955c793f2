"""`quantize --int8` of a real network: ONNX Runtime computes all of it in integers, about as right as its own would."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxport
from fixtures import models
from tests import exact
from tests.quantize.small import case
from tests.real.quantizing import NETWORKS

pytestmark = pytest.mark.real

_NETWORK = NETWORKS["mobilenetv2/mobilenetv2.onnx"]
_INTEGERS = {
    "QuantizeLinear": 1,  # of the input
    "Transpose": 2,  # to channels last and back
    "QLinearConv": 52,
    "QLinearAdd": 10,
    "QLinearGlobalAveragePool": 1,
    "Flatten": 1,
    "QGemm": 1,
    "DequantizeLinear": 1,  # of the output
}


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MobileNetV2 in int8, calibrated on eight photos."""
    folder = tmp_path_factory.mktemp("int8")
    samples = folder / "samples"
    samples.mkdir()
    for number in range(8):
        np.savez(samples / f"{number}.npz", **_NETWORK.feeds(number))
    output = folder / "int8.onnx"
    onnxport.quantize_model(
        models.path(_NETWORK.key),
        "int8",
        output=output,
        calib=samples,
        method="minmax",
        bias_correction=False,
        validate=False,
    )
    return output


def session(path: Path, optimized: Path | None = None) -> Any:
    options = exact.options() if optimized is None else onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def test_onnx_runtime_computes_all_of_it_in_integers(quantized: Path, tmp_path: Path) -> None:
    session(quantized, tmp_path / "optimized.onnx")
    nodes = onnx.load(tmp_path / "optimized.onnx").graph.node
    assert dict(collections.Counter(node.op_type for node in nodes)) == _INTEGERS


def test_its_answers_are_near_the_float_models(quantized: Path) -> None:
    own, ours = session(models.path(_NETWORK.key)), session(quantized)
    feeds = [_NETWORK.feeds(number) for number in range(9, 19)]
    wanted = np.stack([own.run(None, each)[0] for each in feeds])
    noise = wanted - np.stack([ours.run(None, each)[0] for each in feeds])
    assert (
        10 * np.log10(np.square(wanted).sum() / np.square(noise).sum()) > 17
    )  # dB; ONNX Runtime's own has 18.4


def test_weights_are_stored_once_and_as_integers(quantized: Path) -> None:
    model = onnx.load(quantized)
    onnx.checker.check_model(model, full_check=True)
    stored = collections.Counter(
        tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) > 1
    )
    assert stored == {onnx.TensorProto.INT8: 53}


_SILU = """<ir_version: 8, opset_import: ["" : 17]>
network (float[1,3,12,12] x) => (float[n,c,h,w] y{more}) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    g = Sigmoid (a)
    m = Mul (a, g)
    y = Conv (m, v)
    {also}
}}"""


@pytest.mark.parametrize(
    ("more", "also", "low"), [("", "", -6.3), (", float[n,c,h,w] z", "z = Relu (a)", -30)]
)
def test_a_gated_tensor_has_no_steps_where_its_gate_is_closed(
    more: str, also: str, low: float, tmp_path: Path
) -> None:
    """x * Sigmoid(x) of values down to -40, of which nothing below -6.24 passes; other readers see it all."""
    rng = np.random.default_rng(3)
    weights = {
        "w": (rng.normal(size=(4, 3, 3, 3)) * 2).astype(np.float32),
        "v": rng.normal(size=(4, 4, 1, 1)).astype(np.float32),
    }
    text = _SILU.format(more=more, also=also)
    made = case(text, tmp_path, initializers=weights)
    proto = onnx.load(made.path)
    stored = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    (node,) = [each for each in proto.graph.node if each.op_type == "QuantizeLinear" and each.input[0] == "a"]
    end = -float(stored[node.input[1]]) * int(stored[node.input[2]])
    assert end < -6.2
    assert (end > low) == (not more)
