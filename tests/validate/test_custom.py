"""The user's own metrics: found, called, averaged, and what is said when they cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import onnxport
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact
from onnxport.validate.custom_metrics import Averages, load

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"

MODULE = """
import numpy as np
import onnxport

@onnxport.metric(better="lower", unit="px")
def gap(reference, candidate):
    return max(np.abs(reference[name] - candidate[name]).max() for name in reference)

class Scores:
    @staticmethod
    @onnxport.metric(better="higher")
    def share(reference, candidate):
        return 1

def undeclared(reference, candidate):
    return 0

@onnxport.metric(better="lower")
def raising(reference, candidate):
    return reference["no such output"]

@onnxport.metric(better="lower")
def leaving(reference, candidate):
    raise SystemExit(0)

@onnxport.metric(better="lower")
def nan(reference, candidate):
    return float("nan")

@onnxport.metric(better="lower")
def words(reference, candidate):
    return "good"

@onnxport.metric(better="lower")
def several(reference, candidate):
    return np.zeros(3)

@onnxport.metric(better="lower")
def overwriting(reference, candidate):
    reference["y"][:] = 0
    return 0

number = 5
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with a module in it, and no trace of it afterwards."""
    (tmp_path / "own_metrics.py").write_text(MODULE)
    (tmp_path / "broken_metrics.py").write_text("1 / 0")
    (tmp_path / "leaving_metrics.py").write_text("raise SystemExit(0)")
    (tmp_path / "needy_metrics.py").write_text("import a_library_that_is_not_here")
    (tmp_path / "wrong_metrics.py").write_text("import onnxport\n@onnxport.metric(better='up')\ndef f(): ...")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "scores.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.endswith("metrics") or name.startswith("pack"):
            del sys.modules[name]


ANSWER = {"y": np.arange(4.0)}


def test_a_metric_is_averaged_over_the_sets_of_inputs() -> None:
    averages = Averages(load(["own_metrics:gap", "pack.scores:Scores.share"]))
    averages.add("set 1", ANSWER, {"y": ANSWER["y"] + 1})
    averages.add("set 2", ANSWER, {"y": ANSWER["y"] + 3})
    gap, share = averages.figures
    assert (gap.metric, gap.value, gap.unit, gap.better) == ("gap", 2, "px", "lower")
    assert (share.metric, share.value, share.unit, share.better) == ("share", 1, "", "higher")


def test_the_judge_reports_it_under_the_functions_name_and_limits_it() -> None:
    report = onnxport.validate_model(DIGITS, DIGITS, metric=["own_metrics:gap"], budget={"gap": 0})
    assert report.passed
    (figure,) = report.judgements[0].metrics
    assert (figure.metric, figure.value, figure.budget, figure.met) == ("gap", 0, 0, True)
    failed = onnxport.validate_model(DIGITS, DIGITS, metric="own_metrics:gap", budget={"gap": -1})
    assert failed.verdict == "over budget"
    assert failed.reason == "gap 0 px, the budget is at most -1 px"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("own_metrics", "'own_metrics' names no metric; write package.module:function"),
        (
            "no_metrics:gap",
            "'no_metrics:gap' cannot be imported: ModuleNotFoundError: No module named 'no_metrics'",
        ),
        ("broken_metrics:f", "cannot be imported: ZeroDivisionError: division by zero"),
        ("leaving_metrics:f", "cannot be imported: SystemExit: 0"),
        (
            "needy_metrics:f",
            "cannot be imported: ModuleNotFoundError: No module named 'a_library_that_is_not_here'",
        ),
        ("wrong_metrics:f", """a metric cannot be better 'up'; give better="higher" or better="lower\""""),
        ("own_metrics:nothing", "own_metrics.py has no 'nothing'"),
        ("own_metrics:number", "'own_metrics:number' is not a function: it is 5"),
        ("own_metrics:undeclared", "has no direction; declare it with @onnxport.metric(better="),
    ],
)
def test_a_metric_that_cannot_be_had_is_refused_with_the_cause(given: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load([given])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising", "'own_metrics:raising' failed on set 7: KeyError: 'no such output'"),
        ("leaving", "'own_metrics:leaving' failed on set 7: SystemExit: 0"),
        ("nan", "'own_metrics:nan' gave nan on set 7; return a number for every set"),
        ("words", "'own_metrics:words' gave a str on set 7"),
        ("several", "'own_metrics:several' gave a ndarray on set 7"),
        ("overwriting", "failed on set 7: ValueError: assignment destination is read-only"),
    ],
)
def test_a_metric_without_a_value_is_named_with_the_set(name: str, words: str) -> None:
    averages = Averages(load([f"own_metrics:{name}"]))
    with pytest.raises(UsageError) as caught:
        averages.add("set 7", ANSWER, ANSWER)
    assert words in str(caught.value)
    assert ANSWER["y"].flags.writeable


def test_two_metrics_of_one_name_are_refused_and_one_given_twice_is_one() -> None:
    with pytest.raises(UsageError, match="two metrics are called 'gap'"):
        load(["own_metrics:gap", "pack.scores:gap"])
    assert len(load(["own_metrics:gap", "own_metrics:gap"])) == 1


def test_the_current_directory_comes_first_for_the_metric_alone(folder: Path) -> None:
    (folder / "yaml_metrics.py").write_text("import json_of_mine\nfrom own_metrics import gap\n")
    (folder / "json_of_mine.py").write_text("")
    load(["yaml_metrics:gap"])
    assert sys.path[-1] == str(folder)
    assert sys.path.count(str(folder)) == 1


def test_a_metric_is_loaded_before_the_reference_is_run(tmp_path: Path) -> None:
    from onnxport.validate.judge import Judge
    from onnxport.validate.params import ValidateParams

    with pytest.raises(UsageError, match="cannot be imported"):
        Judge(Artifact.open(DIGITS), ValidateParams(metric=("no_metrics:gap",)))
