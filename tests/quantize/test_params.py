"""Which options of quantization go together; the others are refused instead of being ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxport.core.errors import UsageError
from onnxport.pipelines.runner.jobs import conversion, quantization
from onnxport.quantize.params import BELONGS, PRECISIONS, QuantizeParams

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
CALIB: dict[str, Any] = {"calib": DIGITS.with_name("test.npz")}


def test_the_table_speaks_of_options_that_there_are() -> None:
    for_all = {"precision", "seed", "preprocess", "exclude", "memory_limit"}
    assert set(BELONGS) | for_all == set(QuantizeParams.model_fields), (
        "a new option belongs to some or to all"
    )
    for precisions in BELONGS.values():
        assert set() < precisions < set(PRECISIONS)


@pytest.mark.parametrize(
    ("precision", "options", "says"),
    [
        (
            "dynamic",
            CALIB,
            "--calib has no effect with --dynamic; leave it out: it is for --int8 and --int16x8",
        ),
        ("fp16", {"method": "mse"}, "--method has no effect with --fp16; leave it out: it is for --int8 and"),
        ("bf16", {"bias_correction": False}, "--no-bias-correction has no effect with --bf16"),
        ("int8-weights", {"activations": "u8"}, "--activations has no effect with --int8-weights"),
        ("int16x8", {**CALIB, "activations": "u8"}, "--activations has no effect with --int16x8"),
        ("int4-weights", {"per_tensor": True}, "--per-tensor has no effect with --int4-weights"),
        ("int8", {**CALIB, "io": "fp16"}, "--io has no effect with --int8; leave it out: it is for --fp16"),
        ("dynamic", {"jobs": 2}, "--jobs has no effect with --dynamic"),
        ("fp16", {**CALIB, "jobs": 2}, "--jobs has no effect with --fp16"),
        ("int4-weights", {"jobs": 2}, "--jobs is about calibration samples; give their folder: --calib"),
        ("fp16", {"strict": True}, "--strict is about calibration samples; give their folder: --calib"),
        ("int8", {}, "--int8 needs samples of the model's inputs"),
        ("int16x8", {"jobs": 2}, "--int16x8 needs samples of the model's inputs"),
        ("dynamic", {"preprocess": {"scale": "1/255"}}, "--preprocess is for images in --inputs"),
        (None, CALIB, "no precision is given"),
        ("int9", CALIB, "option 'precision': 'int9' is not allowed; give 'int8', 'int16x8', 'dynamic'"),
        ("int8", {**CALIB, "budgets": {}}, "quantization has no option 'budgets'; did you mean 'budget'?"),
    ],
)
def test_an_option_that_says_nothing_is_refused(
    precision: str | None, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        quantization(DIGITS, precision, None, options)
    assert says in str(caught.value)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_takes_what_belongs_to_it(precision: str) -> None:
    values: dict[str, Any] = {
        "calib": DIGITS,
        "method": "minmax",
        "activations": "s8",
        "memory_limit": "1GB",
        "scheduler": "tcp://nowhere:8786",
        "io": "fp16",
        "for_cpu": "vnni",
        "block": 32,
        "weights_method": "gptq",
        "weights_format": "nbits",
    }
    options = {
        name: values.get(name, 1 if name in ("calib_samples", "jobs") else True)
        for name, precisions in BELONGS.items()
        if precision in precisions
    }
    job = quantization(DIGITS, precision, None, options)
    assert job.output.name == f"digits_{precision.replace('-', '_')}.onnx"


def test_the_judge_is_given_what_calibration_holds_back_unless_he_has_inputs_of_his_own(
    tmp_path: Path,
) -> None:
    assert quantization(DIGITS, "int8", None, CALIB).validation.part == "held-back"  # type: ignore[union-attr]
    same = quantization(DIGITS, "int8", None, {**CALIB, "inputs": CALIB["calib"]}).validation
    assert (same.inputs, same.part) == (CALIB["calib"], "held-back")  # type: ignore[union-attr]
    other = quantization(DIGITS, "int8", None, {**CALIB, "inputs": tmp_path}).validation
    assert (other.inputs, other.part) == (tmp_path, "all")  # type: ignore[union-attr]


def test_an_option_of_the_target_is_not_one_of_quantization_that_has_its_name() -> None:
    options = {**CALIB, "precision": "int8", "io": "int8"}
    first, second = conversion(DIGITS, "tflite", None, options).steps
    assert (first.params.io, second.params.io) == ("float", "int8")  # type: ignore[attr-defined]
