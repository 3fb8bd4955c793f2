"""`onnxport.testing`: the proof as an assertion in a user's own tests."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.errors import InputError
from onnxport.testing import assert_equivalent

pytest_plugins = "pytester"
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


@pytest.fixture(autouse=True)
def _this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that pytester starts see this tree, whatever is installed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


@pytest.fixture
def suite(pytester: pytest.Pytester, wrong: Path) -> pytest.Pytester:
    """A project's tests: one artefact is right, one is wrong, and one test proves nothing."""
    pytester.makepyfile(
        "from onnxport.testing import assert_equivalent\n"
        f"def test_right():\n    assert_equivalent({str(DIGITS)!r}, {str(DIGITS)!r}, samples=1)\n"
        f"def test_wrong():\n    assert_equivalent({str(DIGITS)!r}, {str(wrong)!r}, samples=1)\n"
        "def test_other():\n    pass\n"
    )
    return pytester


PLUGIN = ("-p", "pytest_onnxport", "-p", "no:cacheprovider")


def test_a_suite_with_a_wrong_artefact_fails_and_lists_its_proofs(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess(*PLUGIN, "--junitxml=tests.xml")
    assert done.ret == 1
    done.assert_outcomes(passed=2, failed=1)
    shown = next(line for line in done.outlines if line.startswith(">"))
    assert "assert_equivalent(" in shown, "pytest shows the user's line"
    done.stdout.no_fnmatch_line("*raise AssertionError*")
    done.stdout.fnmatch_lines(
        ["=* onnxport proofs =*", "*::test_right: *proven: *", "*::test_wrong: *not equivalent*"]
    )
    done.stdout.no_fnmatch_line("*::test_other: *")
    properties = {
        case.get("name"): [each.get("value") for each in case.iter("property")]
        for case in ElementTree.parse(suite.path / "tests.xml").iter("testcase")
    }
    assert properties["test_other"] == []
    assert ["proven: " in each for each in properties["test_right"]] == [True]


def test_the_proofs_of_other_processes_are_listed(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess(*PLUGIN, "-n", "2")
    done.stdout.fnmatch_lines_random(["*::test_right: *proven: *", "*::test_wrong: *not equivalent*"])


def test_the_plugin_loads_nothing_and_says_nothing_without_a_proof(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_it():\n    assert 'onnxport' not in sys.modules")
    done = pytester.runpytest_subprocess(*PLUGIN)
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*onnxport proofs*")
