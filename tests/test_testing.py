"""`onnxport.testing`: the proof as an assertion in a user's own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.errors import InputError
from onnxport.testing import assert_equivalent

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits" / "digits.onnx"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The digits net with a bias that is 1 too large."""
    model = onnx.load(DIGITS)
    bias = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 1)
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    return tmp_path / "wrong.onnx"


def test_an_equal_model_passes_with_its_figures(tmp_path: Path) -> None:
    made = onnxport.convert_model(DIGITS, "ort", tmp_path / "digits.ort", samples=1)
    report = assert_equivalent(DIGITS, made.path, samples=2, seed=5)
    assert report.verdict == "proven"
    assert [each.name for each in report.outputs] == ["logits"]


def test_another_model_fails_with_its_figures(wrong: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)not equivalent.*logits.*SQNR"):
        assert_equivalent(DIGITS, wrong)


def test_a_missing_file_is_no_failed_assertion(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        assert_equivalent(DIGITS, tmp_path / "nowhere.tflite")


def test_pytest_shows_the_users_line(wrong: Path) -> None:
    test = wrong.with_name("test_model.py")
    test.write_text(
        "from onnxport.testing import assert_equivalent\n"
        f"def test_it():\n    assert_equivalent({str(DIGITS)!r}, {str(wrong)!r}, samples=1)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(command, cwd=wrong.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    shown = next(line for line in done.stdout.splitlines() if line.startswith(">"))
    assert "assert_equivalent(" in shown
    assert "raise AssertionError" not in done.stdout
