"""`onnxport diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import SOURCE, Output, output_options
from onnxport.core.errors import UsageError
from onnxport.validate.debug.params import DebugParams


@subcommand(
    "diff",
    "onnxport diff model.onnx model_int8.onnx",
    "onnxport diff release1.onnx release2.onnx --no-run",
)
@click.argument("first", type=SOURCE)
@click.argument("second", type=SOURCE)
@click.option("--no-run", is_flag=True, help="Compare the files only; do not compare what they compute.")
@options_of(DebugParams)
@library_option
@output_options
def command(first: Path, second: Path, no_run: bool, output: Output, **options: Any) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.formats.model import Model
    from onnxport.inspection.comparison import compare_models
    from onnxport.pipelines.runner import validation
    from onnxport.reports.comparison import comparison_lines, document
    from onnxport.reports.run.terminal import diagnosis_lines, result_lines

    params = params_from(DebugParams, options, purpose="a comparison")
    one, other = Artifact.open(first), Artifact.open(second)
    for artifact in (one, other):
        if artifact.format != "onnx":
            raise UsageError(
                f"{artifact.path} is in {artifact.format} format, and diff compares ONNX files",
                fix=f"to find the node at which it differs: onnxport debug {first} {second}",
            )
    found = compare_models(Model.load(one.path), Model.load(other.path))
    run = None
    if not no_run:
        run = validation.debug(one, other, params, None, output.progress(), output.arguments)

    def text() -> str:
        lines = comparison_lines(found, all_of_it=output.verbose)
        if run is None:
            return lines
        computed = (result_lines(run, detailed=True), diagnosis_lines(run, all_layers=output.verbose))
        return "\n".join((lines, "what they compute", *computed))

    output.result(lambda: document(found, run), text)
    return 0
