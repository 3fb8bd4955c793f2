"""The JSON Schema that editors read: the same keys and values as the reader takes, each with its description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from onnxport.converters.params import CoremlParams, OrtParams, TfliteParams
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines.config.json_schema import schema
from onnxport.quantize.params import QuantizeParams, calibrated_fields
from tests.cli.sandbox import Sandbox

PUBLISHED = Path(__file__).parents[3] / "docs" / "schema" / "pipeline.schema.json"

RIGHT = {
    "one": "{version: 1, model: m.onnx, targets: {a: {to: ort}}}",
    "models": "{version: 1, models: [m.onnx, {source: 'nets:build', export: {input: 'x=1,3', arg: {n: 3}}}], "
    "targets: {a: {to: tflite, models: m}}}",
    "named": "{version: 1, models: {a: 'x/*.onnx', b: {source: s.skops, validate: false}}, targets: {a: {to: ort}}}",
    "int8": "{version: 1, model: m.onnx, validate: {inputs: s, preprocess: {resize: 8, mean: [1, 2.5]}}, targets: {a: "
    "{to: coreml, precision: int8, calib: s, method: minmax, model_version: 1.1, state: {h: hn}, max_size: 4MB}}}",
    "stages": "{version: 1, model: m.onnx, stages: {x: {use: optimize, opset: latest, shape: {x: [1, 3]}}, y: {use: "
    "quantize, from: x, precision: fp16, validate: {budget: {sqnr: 25}}}}, targets: {a: {to: onnx, from: y}}}",
    "matrix": "{version: 1, model: m.onnx, targets: {a: {to: ort, matrix: {from: [x, null], level: [all, basic]}, "
    "output: '{model}-{level}.ort', max_size_ratio: 0.5}}}",
    "variables": "{version: 1, model: '${M}', diagnose: '${D:-false}', validate: {samples: '${N:-20}'}, "
    "targets: {a: {to: ort, level: '${LEVEL}'}}, reports: r.html}",
    "include": "{version: 1, include: more.yaml}",
}
WRONG = {
    "version": "{version: 2, model: m.onnx, targets: {a: {to: ort}}}",
    "no version": "{model: m.onnx, targets: {a: {to: ort}}}",
    "no targets": "{version: 1, model: m.onnx}",
    "top key": "{version: 1, model: m.onnx, modle: x, targets: {a: {to: ort}}}",
    "model key": "{version: 1, model: {source: x, exprot: {}}, targets: {a: {to: ort}}}",
    "export key": "{version: 1, model: {source: x, export: {ospet: 17}}, targets: {a: {to: ort}}}",
    "no to": "{version: 1, model: m.onnx, targets: {a: {from: x}}}",
    "to": "{version: 1, model: m.onnx, targets: {a: {to: tfltie}}}",
    "use": "{version: 1, model: m.onnx, stages: {x: {use: optimise}}, targets: {a: {to: ort}}}",
    "option": "{version: 1, model: m.onnx, targets: {a: {to: ort, layout: nhwc}}}",
    "value": "{version: 1, model: m.onnx, targets: {a: {to: ort, level: al}}}",
    "number": "{version: 1, model: m.onnx, validate: {samples: 0}, targets: {a: {to: ort}}}",
    "proof key": "{version: 1, model: m.onnx, targets: {a: {to: ort, validate: {report_tensors: x.npz}}}}",
    "proof": "{version: 1, model: m.onnx, validate: [], targets: {a: {to: ort}}}",
    "matrix key": "{version: 1, model: m.onnx, targets: {a: {to: ort, matrix: {levl: [all]}}}}",
    "matrix value": "{version: 1, model: m.onnx, targets: {a: {to: ort, matrix: {level: [al]}}}}",
    "matrix list": "{version: 1, model: m.onnx, targets: {a: {to: ort, matrix: {level: all}}}}",
    "onnx": "{version: 1, model: m.onnx, targets: {a: {to: onnx, from: x, precision: fp16}}}",
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_published_schema_is_that_of_the_code() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema(plugins=False), (
        "write onnxport.pipelines.config.json_schema.schema(plugins=False) to docs/schema/pipeline.schema.json"
    )


@pytest.mark.parametrize("name", RIGHT)
def test_right_files_keep_it(name: str, document: dict[str, Any]) -> None:
    jsonschema.validate(yaml.safe_load(RIGHT[name]), document)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_do_not(name: str, document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(WRONG[name]), document)


def test_every_option_is_there_and_described(document: dict[str, Any]) -> None:
    defined = document["$defs"]
    for name, model in {
        "target-tflite": TfliteParams,
        "target-coreml": CoremlParams,
        "target-ort": OrtParams,
        "stage-optimize": OptimizeParams,
        "stage-quantize": QuantizeParams,
    }.items():
        assert set(model.model_fields) <= set(defined[name]["properties"])
        assert all(
            "description" in each for key, each in defined[name]["properties"].items() if key != "matrix"
        )
    assert set(calibrated_fields()) <= set(defined["target-ort"]["properties"])
    assert "--" not in json.dumps(document)  # an option is a key here


def test_command_prints_it(sandbox: Sandbox) -> None:
    outcome = sandbox.run("schema")
    assert (outcome.code, outcome.stderr) == (0, "")
    jsonschema.validate(yaml.safe_load(RIGHT["int8"]), outcome.document)
    assert outcome.document["$defs"].keys() >= json.loads(PUBLISHED.read_text())["$defs"].keys()


@pytest.mark.parametrize("name", ["audio", "ocr", "pytorch", "tabular", "vision"])
def test_the_examples_keep_it(name: str, document: dict[str, Any]) -> None:
    file = PUBLISHED.parents[2] / "examples" / name / "pipeline.yaml"
    jsonschema.validate(yaml.safe_load(file.read_text(encoding="utf-8")), document)
