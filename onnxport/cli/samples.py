"""`onnxport samples`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import PATH, SOURCE, Output, output_options
from onnxport.validate.params import SamplesParams

if TYPE_CHECKING:
    from onnxport.validate.sample_files import SampleFiles


@subcommand(
    "samples",
    "onnxport samples model.onnx -o samples/",
    "onnxport samples model.onnx -o samples/ --shape image=1,3,480,640 --seed 7",
)
@click.argument("model", type=SOURCE)
@click.option(
    "-o", "--output", "folder", type=PATH, required=True, metavar="DIR", help="A new folder for the files."
)
@options_of(SamplesParams)
@library_option
@output_options
def command(model: Path, folder: Path, output: Output, **options: Any) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.pipelines.runner.sample_files import write_samples

    params = params_from(SamplesParams, options, purpose="generating inputs")
    found = write_samples(Artifact.open(model), folder, params, output.progress())
    output.result(lambda: found.model_dump_json(indent=2), lambda: _lines(found))
    return 0


def _lines(found: SampleFiles) -> str:
    width = max(len(file.path) for file in found.files)
    rows = [f"  {file.path:{width}}   {file.purpose}" for file in found.files]
    return "\n".join([f"{found.folder}: {len(found.files)} input sets", *rows, "  README.md"])
