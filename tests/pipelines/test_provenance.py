"""The note in an artefact says what shaped it, and nothing that another folder or machine would have otherwise."""

from __future__ import annotations

from pathlib import Path

from onnxport.converters.params import CoremlParams, TfliteParams
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines.runner.provenance import options_of
from onnxport.quantize.params import QuantizeParams


def test_no_path_and_no_number_of_processes_is_noted() -> None:
    here = QuantizeParams(precision="int8", calib=Path("/home/a/samples"), method="minmax", jobs=1)
    there = QuantizeParams(precision="int8", calib=Path("samples"), method="minmax", jobs=4)
    assert options_of([("quantize", here)]) == options_of([("quantize", there)])
    noted = options_of(
        [
            ("quantize", here),
            ("tflite", TfliteParams(onnx2tf=Path("/opt/onnx2tf"))),
            ("coreml", CoremlParams(function={"second": Path("/b.onnx")})),
        ]
    )
    assert "/" not in str(noted)
    assert "minmax" in str(noted)


def test_a_stage_that_occurs_twice_is_noted_twice() -> None:
    steps = [OptimizeParams(), OptimizeParams(fp16=True), OptimizeParams(opset=18)]
    noted = options_of(("optimize", params) for params in steps)
    assert list(noted) == ["optimize", "optimize#2", "optimize#3"]
    assert [each["fp16"] for each in noted.values() if isinstance(each, dict)] == [False, True, False]
