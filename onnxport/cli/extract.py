"""`onnxport extract`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.artifact_command import ArtifactRequest, makes_artifact
from onnxport.cli.commands import subcommand
from onnxport.cli.options import options_of
from onnxport.cli.output import SOURCE
from onnxport.optimizers.params import ExtractParams
from onnxport.validate.params import ValidateParams


@subcommand(
    "extract",
    "onnxport extract model.onnx --inputs ids,mask --outputs y -o part.onnx",
    "onnxport extract detector.onnx --outputs boxes,scores -o network.onnx",
)
@click.argument("model", type=SOURCE)
@makes_artifact(
    options_of(ExtractParams, ValidateParams),
    where="The file to write, or a folder for it; MODEL_part.onnx beside MODEL unless given.",
)
def command(model: Path, request: ArtifactRequest) -> int:
    from onnxport.pipelines.runner.jobs import extraction

    return request.run("extract", extraction, model)
