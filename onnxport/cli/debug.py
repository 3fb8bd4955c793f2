"""`onnxport debug`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import PATH, SOURCE, Output, output_options, report_option
from onnxport.core.errors import UsageError
from onnxport.validate.debug.params import DebugParams


@subcommand(
    "debug",
    "onnxport debug model.onnx model.tflite",
    "onnxport debug model.onnx model.tflite -o repro/ --memory-limit 1GB",
)
@click.argument("reference", type=SOURCE)
@click.argument("candidate", type=SOURCE)
@click.option(
    "-o",
    "--output",
    "destination",
    type=PATH,
    metavar="FOLDER",
    help="Write the node at fault to FOLDER, as a separate model with its inputs and both answers.",
)
@options_of(DebugParams)
@library_option
@report_option
@output_options
def command(
    reference: Path,
    candidate: Path,
    destination: Path | None,
    report_files: tuple[Path, ...],
    output: Output,
    **options: Any,
) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.pipelines.runner import validation
    from onnxport.reports import saving
    from onnxport.reports.run.terminal import diagnosis_lines

    if destination is not None and destination.resolve() in {path.resolve() for path in report_files}:
        raise UsageError("-o and --report name one file", fix="give -o a folder of its own")
    params = params_from(DebugParams, options, purpose="debugging")
    with saving(report_files, "debug") as save:
        report = validation.debug(
            Artifact.open(reference),
            Artifact.open(candidate),
            params,
            destination,
            output.progress(),
            output.arguments,
        )
        save(report)
    output.run(report, lambda: diagnosis_lines(report, all_layers=output.verbose))
    report.check()
    return report.exit_code
