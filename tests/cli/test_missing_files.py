"""Every command asks for the near name of a file that does not exist."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnxport.cli.commands import cli
from tests.cli.sandbox import DIGITS

COMMANDS = {
    "modle.onnx": (
        "convert modle.onnx --to ort",
        "quantize modle.onnx --int8 --calib rows.npz",
        "optimize modle.onnx",
        "inspect modle.onnx",
        "extract modle.onnx --outputs x",
        "validate model.onnx modle.onnx",
        "debug modle.onnx model.onnx",
        "diff model.onnx modle.onnx",
        "view modle.onnx",
        "bench modle.onnx",
        "bench model.onnx --reference modle.onnx",
        "bench model.onnx --against modle.onnx",
        "profile modle.onnx",
        "init modle.onnx --force",
    ),
    "row.npz": (
        "quantize model.onnx --int8 --calib row.npz",
        "validate model.onnx model.onnx --inputs row.npz",
        "convert model.onnx --to ort --inputs row.npz",
        "bench model.onnx --inputs row.npz",
        "debug model.onnx model.onnx --inputs row.npz",
    ),
    "pipelin.yaml": (
        "run pipelin.yaml",
        "plan pipelin.yaml",
        "cache list pipelin.yaml",
        "view model.onnx --data pipelin.yaml",
        "optimize model.onnx --passes pipelin.yaml",
        "convert model.onnx --to ort --operators pipelin.yaml",
        "convert model.onnx --to ort --custom-ops-library pipelin.yaml",
    ),
}
NEAR = {"modle.onnx": "model.onnx", "row.npz": "rows.npz", "pipelin.yaml": "pipeline.yaml"}


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name, commands in COMMANDS.items() for command in commands]
)
def test_a_missing_file_is_asked_for_by_its_near_name(
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, "model.onnx")
    shutil.copy(DIGITS.with_name("test.npz"), "rows.npz")
    Path("pipeline.yaml").write_text("model: model.onnx\ntargets: [ort]\n")
    assert cli.main(command.split(), standalone_mode=False) == 4
    assert f"{name} does not exist; did you mean '{NEAR[name]}'?\nexit 4" in capsys.readouterr().err
