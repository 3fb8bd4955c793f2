"""`onnxport optimize`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.artifact_command import ArtifactRequest, makes_artifact
from onnxport.cli.commands import subcommand
from onnxport.cli.options import options_of
from onnxport.cli.output import SOURCE
from onnxport.optimizers.params import OptimizeParams
from onnxport.validate.params import ValidateParams


@subcommand(
    "optimize",
    "onnxport optimize model.onnx -o small.onnx",
    "onnxport optimize model.onnx --opset latest --no-simplify",
    "onnxport optimize model.onnx --opset 13 --fp16",
)
@click.argument("model", type=SOURCE)
@makes_artifact(
    options_of(OptimizeParams, ValidateParams),
    where="The file to write, or a folder for it; MODEL_optimized.onnx beside MODEL unless given.",
    defines=True,
)
def command(model: Path, request: ArtifactRequest) -> int:
    from onnxport.pipelines.runner.jobs import optimization

    return request.run("optimize", optimization, model)
