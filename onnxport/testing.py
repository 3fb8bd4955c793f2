"""The proof as an assertion, for the tests of a model's own project.

from onnxport.testing import assert_equivalent

def test_the_phone_answers_as_the_model():
    assert_equivalent("model.onnx", "app/model.tflite", budget={"top1_agreement": 0.99})

With pytest, the plugin `pytest_onnxport` lists the figures of all proofs in the summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from onnxport.core.errors import NotProvenError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.params import params_of
from onnxport.pipelines.runner import validation
from onnxport.reports.run import terminal
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Report

if TYPE_CHECKING:
    from onnxport.keyword_options import StrPath, ValidateOptions

_proofs: list[str] = []  # until the plugin takes them


def assert_equivalent(reference: StrPath, candidate: StrPath, **options: Unpack[ValidateOptions]) -> Report:
    """Assert that a model file computes what another one computes, as `onnxport validate` judges it.

    Args:
        reference: the original; both may be `.onnx`, `.ort`, `.tflite` or `.mlpackage`.
        candidate: the artefact.
        **options: the fields of ValidateParams: inputs, budget, samples, seed, shape, ...

    Returns:
        The verdict with its figures, for further assertions.

    Raises:
        AssertionError: the candidate differs, misses a budget, or the proof was inconclusive; its text has the figures
            of every output.
        OnnxportError: a file or an option is wrong, or a model cannot run.

    Examples:
        >>> from onnxport.testing import assert_equivalent
        >>> made = onnxport.convert_model("digits.onnx", to="tflite")
        >>> report = assert_equivalent("digits.onnx", made.path, budget={"top1_agreement": 0.99})
        >>> report.verdict
        'proven'
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    params = params_of(ValidateParams, options, purpose="validation")
    run = validation.validate(Artifact.open(reference), Artifact.open(candidate), params, None)
    _proofs.append(terminal.result_lines(run))
    try:
        run.check()
    except NotProvenError as error:
        raise AssertionError(f"{error}\n{terminal.result_lines(run, detailed=True)}") from None
    return run.artifacts[0].report


def taken_proofs() -> list[str]:
    """Return a line per proof of this process since the last call."""
    taken = _proofs.copy()
    _proofs.clear()
    return taken
