"""The examples in the docstrings of the public API run, and each function has one."""

from __future__ import annotations

import doctest
import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxport
import onnxport.testing

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
PUBLIC = {name: getattr(onnxport, name) for name in onnxport.__all__}
FUNCTIONS: dict[str, Any] = {name: each for name, each in PUBLIC.items() if inspect.isfunction(each)} | {
    "assert_equivalent": onnxport.testing.assert_equivalent
}


PIPELINE = "version: 1\nmodel: digits.onnx\ntargets:\n  phone: {to: ort, max_size: 1MB}"


def examples_of(name: str, text: str) -> doctest.DocTest:
    names = {"onnxport": onnxport, "np": np, "Path": Path}
    return doctest.DocTestParser().get_doctest(text, names, name, None, 0)


def failures_of(test: doctest.DocTest) -> str:
    """Run the examples; return what did not come out as written."""
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    doctest.DocTestRunner(optionflags=flags).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_examples_of_the_docstring_come_out_as_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(DIGITS, tmp_path, dirs_exist_ok=True)
    tmp_path.joinpath("pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    test = examples_of(name, inspect.getdoc(FUNCTIONS[name]) or "")
    assert any(name in each.source for each in test.examples)
    assert failures_of(test) == ""


def test_a_wrong_example_would_fail() -> None:
    assert "Expected:\n    '0.0'" in failures_of(examples_of("wrong", ">>> onnxport.__version__\n'0.0'\n"))
