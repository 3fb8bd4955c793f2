"""Channels that reach far less than others keep their accuracy beside operators that stay in float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxport
from benchmarks.quantizing import scoring
from fixtures import printed, reality
from tests.quantize.small import case

_RNG = np.random.default_rng(4)
# Of 8 channels, one reaches 300 times as far as the others.
_REACH = np.where(np.arange(8) == 3, 30.0, 0.1).astype(np.float32)
_CONSTANTS = {
    "first": _RNG.normal(size=(8, 3, 3, 3)).astype(np.float32) * _REACH[:, None, None, None],
    "depthwise": _RNG.normal(size=(8, 1, 3, 3)).astype(np.float32) / _REACH[:, None, None, None],
    "pointwise": _RNG.normal(size=(5, 8, 1, 1)).astype(np.float32) / _REACH[:, None, None],
}
_NETWORKS = {
    "depthwise": ("Conv <group = 8, pads = [1, 1, 1, 1]> (h, depthwise)", 30.0),
    "pointwise": ("Conv (h, pointwise)", 20.0),
}


@pytest.mark.parametrize("name", _NETWORKS)
def test_a_channel_with_a_far_reach_leaves_the_others_their_steps(name: str, tmp_path: Path) -> None:
    product, least = _NETWORKS[name]
    made = case(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,12,12] x) => (float[n,c,h,w] y) {{
            a = Conv (x, first)
            h = HardSwish (a)
            y = {product}
        }}""",
        tmp_path,
        initializers=_CONSTANTS,
    )
    assert made.sqnr > least
    # Both products still compute in integers.
    assert made.operators()["QLinearConv"] == 2


def test_even_channels_get_no_multiplication(tmp_path: Path) -> None:
    made = case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,3,12,12] x) => (float[n,c,h,w] y) {
            a = Conv (x, first)
            h = HardSwish (a)
            y = Conv (h, second)
        }""",
        tmp_path,
        initializers={
            "first": _RNG.normal(size=(8, 3, 3, 3)).astype(np.float32),
            "second": _RNG.normal(size=(5, 8, 1, 1)).astype(np.float32),
        },
    )
    assert "Mul" not in [node.op_type for node in onnx.load(made.path).graph.node]


@pytest.mark.real
@pytest.mark.slow
def test_a_recognizer_with_uneven_channels_keeps_its_answers(tmp_path: Path) -> None:
    """PP-OCRv3's recognizer: 3.4 dB without, 14 with it, 20 with the ends of what LayerNorm reads; NNCF has 17.8."""
    model = reality.path("ppocr-v3/rec.onnx")
    for part, count in (("calibration", 12), ("test", 8)):
        (tmp_path / part).mkdir()
        for number in range(count):
            pixels = np.asarray(printed.line(part, number, (48, 320)), np.float32)  # type: ignore[arg-type]
            np.savez(tmp_path / part / f"{number:02}.npz", x=(pixels / 127.5 - 1).transpose(2, 0, 1)[None])
    made = tmp_path / "int8.onnx"
    result = onnxport.quantize_model(model, "int8", output=made, calib=tmp_path / "calibration", cache=False)
    assert result.report is not None
    assert {each.question: each.verdict for each in result.report.judgements}["translation"] == "proven"
    tests = sorted((tmp_path / "test").glob("*.npz"))
    assert scoring.score(made, scoring.answers(model, tests), tests).sqnr > 17
