"""What stands on the command line as text may stand in YAML and Python as what it is."""

from __future__ import annotations

import pytest

from onnxport.core.errors import UsageError
from onnxport.exporters.factory import _arguments
from onnxport.exporters.params import ExportParams
from onnxport.pipelines.params import params_of
from onnxport.samples.preprocessing import Preprocessing, preprocessing
from onnxport.validate.params import ValidateParams


def preprocessed(**given: object) -> Preprocessing:
    params = params_of(ValidateParams, {"inputs": ".", "preprocess": given}, purpose="validate")
    return preprocessing(params.preprocess)


def test_settings_may_be_numbers_and_lists() -> None:
    as_text = preprocessed(resize="256x320", crop="224", scale="1/255", mean="0.485,0.456,0.406", std="0.5")
    assert (
        preprocessed(resize="256x320", crop=224, scale="1/255", mean=[0.485, 0.456, 0.406], std=0.5)
        == as_text
    )
    assert as_text.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("value", [None, True, {"a": 1}])
def test_a_setting_that_is_neither_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"preprocess\['resize'\].*give text"):
        preprocessed(resize=value)


@pytest.mark.parametrize("value", [3, 0.5, 1e-5, True, [1, 2], "small", [0.25, "x"]])
def test_an_argument_reaches_the_factory_as_it_was_given(value: object) -> None:
    params = params_of(ExportParams, {"arg": {"depth": value}}, purpose="export")
    assert _arguments(params.arg) == {"depth": value}


@pytest.mark.parametrize(
    ("setting", "says"),
    [({"scale": "1/127.5"}, "scale=1/127.5: '1/127.5' is not a number"), ({"size": 8}, "no setting 'size'")],
)
def test_an_impossible_setting_is_refused_before_anything_is_read(
    setting: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        preprocessed(**setting)
