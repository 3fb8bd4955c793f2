"""PaddlePaddle: how its environment is found and what is said without; the whole way where there is one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from onnxport import export_model
from onnxport.core.errors import InputError, MissingDependencyError, UsageError
from onnxport.exporters import paddle
from onnxport.exporters.paddle.environment import Environment, Program
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

# Saves a small network; runs in the environment.
_NETWORK = """
import paddle
from paddle import nn

paddle.seed(0)


class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2D(1, 6, 3, padding=1), nn.BatchNorm2D(6), nn.ReLU(), nn.MaxPool2D(2, 2))
        self.scores = nn.Sequential(nn.Linear(6 * 14 * 14, 10), nn.Softmax())

    def forward(self, image):
        return self.scores(paddle.flatten(self.features(image), 1))


network = Network()
network.eval()
spec = paddle.static.InputSpec([None, 1, 28, 28], "float32", "image")
paddle.jit.save(network, "model/inference", input_spec=[spec])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Begins as PaddlePaddle's do, and is none."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "inference.json").write_text('{"base_code": {"magic": "pir", "version": 4}}')
    (made / "inference.pdiparams").write_bytes(b"weights")
    return made


def _stand_in(folder: Path, code: str) -> Path:
    """A paddle2onnx that runs `code`, with a Python beside it."""
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    command = folder / "paddle2onnx"
    command.write_text(f"#!{sys.executable}\nimport sys\n{code}")
    command.chmod(0o755)
    return command


def test_without_paddle2onnx_it_says_how_to_make_an_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(MissingDependencyError, match=r"not on PATH; .*-m venv .*paddlepaddle paddle2onnx"):
        paddle.load(Source.of(folder), ExportParams())
    with pytest.raises(MissingDependencyError, match="nowhere is not a command"):
        paddle.load(Source.of(folder), ExportParams(paddle2onnx=Path("nowhere")))


def test_an_environment_without_paddlepaddle_is_named(folder: Path, tmp_path: Path) -> None:
    command = _stand_in(tmp_path / "bin", "")
    with pytest.raises(MissingDependencyError, match=r"lacks .*(numpy|paddle).*paddle-env"):
        paddle.load(Source.of(folder), ExportParams(paddle2onnx=command))


def test_a_json_file_is_told_by_its_content(folder: Path) -> None:
    assert Source.of(folder).kind == "paddle"
    found = Source.of(folder / "inference.json")
    assert found.kind == "paddle"
    assert [file.name for file in found.files] == ["inference.json", "inference.pdiparams"]


def test_a_program_without_weights_is_refused(folder: Path) -> None:
    (folder / "inference.pdiparams").unlink()
    with pytest.raises(InputError, match="no weights"):
        paddle.load(Source.of(folder), ExportParams())


def test_what_the_file_tells_is_not_asked_for(folder: Path) -> None:
    with pytest.raises(UsageError, match="--input has no effect on a PaddlePaddle model"):
        paddle.load(Source.of(folder), ExportParams(input="x=1,3"))


def test_paddle2onnx_that_gives_up_is_quoted_without_colours(folder: Path, tmp_path: Path) -> None:
    from onnxport.core.errors import CannotConvertError

    said = (
        "print('\\x1b[0;31m[ERROR] (Unimplemented) an attribute\\x1b[0m'); print('a warning'); sys.exit(255)"
    )
    command = _stand_in(tmp_path / "bin", said)
    program = Program(folder / "inference.json", folder / "inference.pdiparams")
    with pytest.raises(CannotConvertError, match=r": \[ERROR\] \(Unimplemented\) an attribute$"):
        Environment.find(command).convert(program, folder, None)


@pytest.mark.exhaustive
def test_a_network_is_exported_and_proven(tmp_path: Path) -> None:
    command = shutil.which("paddle2onnx")
    if command is None:
        pytest.skip("paddle2onnx is not on PATH: docs/guide/export.md says how to make its environment")
    import subprocess

    script = tmp_path / "network.py"
    script.write_text(_NETWORK)
    subprocess.run([Path(command).with_name("python"), script], check=True, cwd=tmp_path, capture_output=True)
    result = export_model(tmp_path / "model", tmp_path / "out.onnx")
    assert result.report.verdict == "proven"
    assert "PaddlePaddle" in result.report.reference.runtime
