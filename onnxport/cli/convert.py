"""`onnxport convert`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.artifact_command import ArtifactRequest, makes_artifact
from onnxport.cli.commands import subcommand
from onnxport.cli.options import options_of
from onnxport.cli.output import PATH
from onnxport.pipelines.registry import TARGETS
from onnxport.quantize.params import calibrated_fields
from onnxport.validate.params import ValidateParams


@subcommand(
    "convert",
    "onnxport convert model.onnx --to tflite",
    "onnxport convert model.onnx --to tflite --precision fp16 -o model16.tflite",
    "onnxport convert model.onnx --to tflite --shape 'x=1,3,?,?' --layout nhwc",
    "onnxport convert model.onnx --to tflite --precision int8 --calib samples/",
    "onnxport convert model.onnx --to coreml --precision fp16",
    "onnxport convert model.onnx --to ort --inputs samples/ --report model.json",
)
@click.argument("model", type=PATH)
@click.option("--to", required=True, type=click.Choice(list(TARGETS)), help="The format to make.")
@makes_artifact(
    options_of(
        ValidateParams,
        targets={name: stage.params for name, stage in TARGETS.items()},
        conditional={"--calib": calibrated_fields()},
    ),
    where="Where the result goes; beside MODEL, with the suffix of its format, unless given.",
    rejected="OUT.rejected.*",
    timed=True,
)
def command(model: Path, to: str, request: ArtifactRequest) -> int:
    from onnxport.pipelines.runner.jobs import conversion

    return request.run("convert", conversion, model, to)
