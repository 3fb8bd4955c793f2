"""`onnxport validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import SOURCE, Output, output_options, report_option
from onnxport.validate.params import ValidateParams


@subcommand(
    "validate",
    "onnxport validate model.onnx model.tflite",
    "onnxport validate float.onnx other.ort --inputs samples/ --rtol 1e-3",
)
@click.argument("reference", type=SOURCE)
@click.argument("candidate", type=SOURCE)
@options_of(ValidateParams)
@library_option
@report_option
@output_options
def command(
    reference: Path, candidate: Path, report_files: tuple[Path, ...], output: Output, **options: Any
) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.pipelines.runner import validation
    from onnxport.reports import saving

    params = params_from(ValidateParams, options, purpose="validation")
    with saving(report_files, "validate") as save:
        report = validation.validate(
            Artifact.open(reference), Artifact.open(candidate), params, output.progress(), output.arguments
        )
        save(report)
    output.run(report)
    report.check()
    return report.exit_code
