"""`onnxport export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.options import given, options_of, spelled
from onnxport.cli.output import PATH, Output, output_options, report_option
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
@click.option(
    "-o",
    "--output",
    "destination",
    type=PATH,
    metavar="OUT",
    help="Where the ONNX file goes; beside SOURCE, or FUNCTION.onnx here, unless given.",
)
@options_of(ExportParams, ValidateParams)
@click.option("--no-validate", is_flag=True, help="Let the result out unproven; its report says so.")
@click.option(
    "--keep-rejected", is_flag=True, help="Keep a result that fails the proof, as OUT.rejected.onnx."
)
@report_option
@output_options
def command(
    source: str,
    destination: Path | None,
    no_validate: bool,
    keep_rejected: bool,
    report_files: tuple[Path, ...],
    output: Output,
    **options: Any,
) -> int:
    from onnxport.pipelines import exporting
    from onnxport.pipelines.reports import saving

    with saving(report_files, "export") as save:
        with spelled():
            job = exporting.export_job(
                source, destination, given(options), validate=not no_validate, keep_rejected=keep_rejected
            )
        report = exporting.run(job, "export", output.progress(), save, output.arguments)
    output.run(report)
    report.check()
    return report.exit_code
