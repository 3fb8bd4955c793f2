"""`onnxport validate --inputs` with audio, and one file instead of a folder, through the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import scipy.io.wavfile
from onnx import TensorProto, helper, numpy_helper

from tests.cli.sandbox import Outcome, Sandbox


def waveform_model(path: Path, channels: int, window: int | str) -> None:
    """Save y = Conv(x), x: float32[N, channels, window], a filter of 5 taps."""
    weights = np.random.default_rng(0).standard_normal((4, channels, 5)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "filter",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, window])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, None])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture
def clip(sandbox: Sandbox) -> Path:
    samples = np.random.default_rng(0).integers(-9000, 9000, (4410, 2), np.int16)
    path = sandbox.folder / "clip.wav"
    scipy.io.wavfile.write(path, 44100, samples)
    return path


def validate(sandbox: Sandbox, *options: str) -> Outcome:
    return sandbox.run("validate", "filter.onnx", "filter.onnx", *options)


def test_a_file_is_fed_in_windows_at_the_rate_that_is_given(sandbox: Sandbox, clip: Path) -> None:
    waveform_model(sandbox.folder / "filter.onnx", 1, 400)
    run = validate(sandbox, "--inputs", "clip.wav", "--preprocess", "rate=16000", "--json")
    assert run.code == 0, run.stderr
    report = run.document["artifacts"][0]["report"]
    assert [fed["label"] for fed in report["fed"]] == [f"clip.wav[{begin}]" for begin in (0, 400, 800, 1200)]


def test_audio_that_cannot_be_read_or_does_not_fit_ends_with_exit_4(sandbox: Sandbox, clip: Path) -> None:
    waveform_model(sandbox.folder / "filter.onnx", 6, "T")
    stereo = validate(sandbox, "--inputs", "clip.wav")
    assert stereo.code == 4
    assert "clip.wav has 2 channels: the model takes x: float32[N, 6, T]" in " ".join(stereo.stderr.split())
    waveform_model(sandbox.folder / "filter.onnx", 1, "T")
    whole = clip.read_bytes()
    for content, message in ((whole[:30], "ends within its header"), (b"", "has no samples")):
        clip.write_bytes(content)
        run = validate(sandbox, "--inputs", "clip.wav")
        assert run.code == 4
        assert message in run.stderr
    (sandbox.folder / "clip.mp4").write_bytes(b"\0")
    video = validate(sandbox, "--inputs", "clip.mp4")
    assert video.code == 4
    assert "ffmpeg -i clip.mp4 frames/%05d.png" in " ".join(video.stderr.split())
    (sandbox.folder / "in").mkdir()
    clip.write_bytes(whole)
    clip.rename(sandbox.folder / "in" / "clip.wav")
    (sandbox.folder / "in" / "preprocess.yaml").write_text("rate: 0")
    assert validate(sandbox, "--inputs", "in").code == 4
    assert validate(sandbox, "--inputs", "in", "--preprocess", "rate=fast").code == 2
