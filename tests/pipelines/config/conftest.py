from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxport.core.errors import BadPipelineError, OnnxportError
from onnxport.pipelines.config.pipeline import Pipeline
from onnxport.pipelines.config.reader import read
from tests.cli.sandbox import Sandbox

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"

Read = Callable[[str | bytes], Pipeline]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with model.onnx, samples/ and an empty folder nothing/."""
    shutil.copy(DIGITS / "digits.onnx", tmp_path / "model.onnx")
    (tmp_path / "samples").mkdir()
    shutil.copy(DIGITS / "test.npz", tmp_path / "samples")
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONNXPORT_CACHE", raising=False)
    return tmp_path


@pytest.fixture
def pipeline(project: Path) -> Read:
    """Reads a text as pipeline.yaml."""

    def reading(text: str | bytes) -> Pipeline:
        file = Path("pipeline.yaml")
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return read(file)

    return reading


def faults(error: OnnxportError) -> list[str]:
    """The sentences of what was wrong with a file."""
    found = error.faults if isinstance(error, BadPipelineError) else (error,)
    return [re.sub(r"^pipeline\.yaml:(?=\d)", "", str(each)) for each in found]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)
