"""The typed keyword options of the Python API: those of the params models, and what a type checker makes of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from onnxport import keyword_options as typed
from onnxport.bench.params import BenchParams
from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.deployment.params import DeploymentParams
from onnxport.exporters.params import ExportParams
from onnxport.optimizers.params import ExtractParams, OptimizeParams
from onnxport.profiling.params import ProfileParams
from onnxport.quantize.params import QuantizeParams, calibrated_fields
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import SamplesParams, ValidateParams

# Options, the params models behind them, what the functions take as an argument of its own.
OPTIONS: dict[type, tuple[tuple[type[BaseModel], ...], Collection[str]]] = {
    typed.ValidateOptions: ((ValidateParams,), ()),
    typed.DebugOptions: ((DebugParams,), ()),
    typed.SamplesOptions: ((SamplesParams,), ()),
    typed.QuantizeOptions: ((QuantizeParams, ValidateParams), ("precision",)),
    typed.ExportOptions: ((ExportParams, ValidateParams), ()),
    typed.OptimizeOptions: ((OptimizeParams, ValidateParams), ()),
    typed.ExtractOptions: ((ExtractParams, ValidateParams), ("inputs", "outputs")),
    typed.DeploymentOptions: ((DeploymentParams,), ("runs_on",)),
    typed.ProfileOptions: ((ProfileParams,), ()),
    typed.BenchOptions: ((BenchParams,), ()),
    typed.ConvertOptions: ((TfliteParams, CoremlParams, OrtParams, ValidateParams), ()),
}
# Not for users: a pipeline sets them.
INTERNAL = {"part", "preprocess_is_shared"}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_every_option_is_typed_and_no_other(options: type) -> None:
    models, own = OPTIONS[options]
    fields = {name for model in models for name in model.model_fields}
    if options is typed.ConvertOptions:
        fields |= set(calibrated_fields())
    assert set(get_type_hints(options)) == fields - set(own) - INTERNAL


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_words_are_those_that_the_params_models_take(options: type) -> None:
    """Each literal of a field is one of its type; bool, int and float are the same type."""
    hints = get_type_hints(options)
    for model in OPTIONS[options][0]:
        for name in set(hints) & set(model.model_fields):
            expected, given = model.model_fields[name].annotation, hints[name]
            assert words_of(expected) <= words_of(given) or get_origin(expected) is tuple, name
            if expected in (bool, int, float):
                assert given is expected, name


def words_of(hint: Any) -> set[Any]:
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {word for each in get_args(hint) for word in words_of(each)}


RIGHT = """
from pathlib import Path
import onnxport
result = onnxport.convert_model("m.onnx", to="tflite", precision="int8", calib="samples", shape={"x": (1, 3, None)})
reveal_type(result)
both = onnxport.convert_model("m.onnx", to=["tflite", "ort"], precision=("fp16", "int8"), calib=Path("samples"))
reveal_type(both)
runtime = onnxport.load("m.onnx")
reveal_type(runtime.inputs)
onnxport.convert_model("m.onnx", to="coreml", image={"x": {"scale": [1.0, 2.0], "layout": "BGR"}}, shape="x=1,3")
onnxport.quantize_model("m.onnx", "int8", calib="samples", budget={"sqnr": 30}, exclude=["a", "Conv"])
onnxport.validate_model("m.onnx", "m.tflite", inputs="samples", preprocess={"mean": [0.5, 0.5, 0.5], "scale": 2})
onnxport.bench_models(["m.onnx"], threads=(1, 2), levels=("disable", "all"), runs=5)
onnxport.export_model("net.pt", input={"x": "1,3,16,16"}, dynamic={"x": ("batch", None)})
"""
WRONG = """
onnxport.convert_model("m.onnx", to="tflite", precison="fp16")
onnxport.convert_model("m.onnx", to="tflite", precision="fp17")
onnxport.quantize_model("m.onnx", "int8", calibs="samples")
onnxport.validate_model("m.onnx", "m.tflite", seed="one")
"""
USES = RIGHT + WRONG.removeprefix("\n")


def test_a_type_checker_knows_results_and_finds_wrong_options(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "user.py"
    program.write_text(USES)
    settings = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--no-pretty"]
    shown, _, _ = api.run([*settings, f"--cache-dir={tmp_path}", str(program)])
    told: dict[int, str] = {}
    for line in shown.splitlines():
        if found := re.match(r"[^:]*:(\d+): (?:error|note: Revealed type)(.*)", line):
            told[int(found[1])] = told.get(int(found[1]), "") + found[2]
    first_wrong = USES.splitlines().index(WRONG.splitlines()[1]) + 1
    expected = {
        5: '"onnxport.api.ConversionResult"',
        7: '"tuple[onnxport.api.ConversionResult, ...]"',
        9: '"tuple[onnxport.formats.artifact.TensorSpec, ...]"',
        **dict(enumerate(("precison", "fp17", "calibs", '"seed"'), first_wrong)),
    }
    assert told.keys() == expected.keys(), shown
    for line, word in expected.items():
        assert word in told[line]
