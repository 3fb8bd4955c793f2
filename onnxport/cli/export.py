"""`onnxport export`."""

from __future__ import annotations

import click

from onnxport.cli.artifact_command import ArtifactRequest, makes_artifact
from onnxport.cli.commands import subcommand
from onnxport.cli.options import options_of
from onnxport.exporters.params import ExportParams
from onnxport.validate.params import ValidateParams


@subcommand(
    "export",
    "onnxport export mypkg:build --weights model.pt --input x=1,3,224,224",
    "onnxport export mypkg:build --input x=1,3,64,64 --dynamic x=batch,_,h,w",
    "onnxport export saved_model/ -o model.onnx",
    "onnxport export pipeline.skops --inputs table.csv",
)
@click.argument("source")
@makes_artifact(
    options_of(ExportParams, ValidateParams),
    where="The ONNX file to write, or a folder for it; beside SOURCE, or FUNCTION.onnx here, unless given.",
)
def command(source: str, request: ArtifactRequest) -> int:
    from onnxport.pipelines.runner.jobs import exportation

    return request.run("export", exportation, source)
