"""`onnxport convert`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.artifact_command import ArtifactRequest, makes_artifact
from onnxport.cli.commands import subcommand
from onnxport.cli.options import Words, options_of, word_list
from onnxport.cli.output import SOURCE
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
    "onnxport convert *.onnx --to tflite,ort --precision fp32,fp16 -o made/",
)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=SOURCE)
@click.option(
    "--to",
    "to",
    required=True,
    multiple=True,
    type=Words(list(TARGETS)),
    callback=word_list(list(TARGETS)),
    metavar=f"[{'|'.join(TARGETS)}]",
    help="The format to make; several as a,b.",
)
@makes_artifact(
    options_of(
        ValidateParams,
        targets={name: stage.params for name, stage in TARGETS.items()},
        conditional={"--calib": calibrated_fields()},
        lists=("precision",),
    ),
    where="The file to write, or a folder for it; beside MODEL, with the suffix of its format, unless given.",
    rejected="OUT.rejected.*",
    timed=True,
    defines=True,
)
def command(models: tuple[Path, ...], to: tuple[str, ...], request: ArtifactRequest) -> int:
    precisions = request.options.get("precision", ())
    if len(models) > 1 or len(to) > 1 or len(precisions) > 1:
        return request.run_several("convert", models, to)
    from onnxport.pipelines.runner.jobs import conversion

    if precisions:
        request.options["precision"] = precisions[0]
    return request.run("convert", conversion, models[0], to[0])
