"""A loss that rounding explains passes, one that it does not is named: on a real model, in four precisions."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

import onnxport
from onnxport.formats.artifact import Artifact
from onnxport.validate.judge import Judge
from onnxport.validate.params import ValidateParams
from onnxport.validate.precision import precision_of
from onnxport.validate.report import Report
from onnxport.validate.rounding_errors import check_nodes
from onnxport.validate.translation.judgement import AGAINST
from tests.faults import lowered
from tests.faults.lowered import FAULTS, PRECISIONS, Row

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lowered")


def _judged(root: Path, candidate: Path, model: str = "digits") -> Report:
    where = lowered.place(model, root)
    return onnxport.validate_model(where.source, candidate, inputs=where.tests)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_right_file_is_measured_and_every_node_explained(precision: str, root: Path) -> None:
    report = _judged(root, lowered.right("digits", precision, root))
    assert report.verdict == "proven"
    assert [each.question for each in report.judgements] == ["quality", "translation"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_loss_of_every_node_of_a_right_file_is_explained(precision: str, root: Path) -> None:
    where, candidate = lowered.place("digits", root), Artifact.open(lowered.right("digits", precision, root))
    params = ValidateParams(inputs=where.tests)
    with Judge(Artifact.open(where.source), params) as judge:
        lower = precision_of(candidate)
        fault, note = check_nodes(judge.reference, candidate, params, lower)
    assert fault is None
    assert note.startswith("rounding explains the loss at each of")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_channel_that_is_not_its_own_is_a_fault_of_the_node(precision: str, root: Path) -> None:
    broken = onnx.load(lowered.right("digits", precision, root))
    fault = next(each for each in FAULTS if each.__name__ == "weight_scale")
    fault(broken, random.Random(str(Row("digits", precision, "weight_scale"))))
    onnx.save(broken, root / "broken.onnx")
    report = _judged(root, root / "broken.onnx")
    assert report.verdict == "not equivalent"
    assert [each.against for each in report.judgements] == [report.judgements[0].against, AGAINST]
    assert "weights are more than half a step from the source's" in report.reason


def test_nothing_is_said_of_a_calibrated_model_on_generated_inputs(root: Path) -> None:
    """What exceeds the calibrated ranges is cut off, at every node that it reaches; integers are proven."""
    where = lowered.place("digits", root)
    report = onnxport.validate_model(where.source, lowered.right("digits", "int8", root))
    assert report.verdict in ("proven", "over budget")
    assert all("rounding explains" not in text for text in (report.reason, *report.notes))
