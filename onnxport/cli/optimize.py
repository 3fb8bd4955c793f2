"""`onnxport optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.options import given, options_of, spelled
from onnxport.cli.output import PATH, Output, output_options, report_option
from onnxport.optimizers.params import OptimizeParams
from onnxport.validate.params import ValidateParams


@subcommand(
    "optimize",
    "onnxport optimize model.onnx -o small.onnx",
    "onnxport optimize model.onnx --opset latest --no-simplify",
    "onnxport optimize model.onnx --opset 13 --fp16",
)
@click.argument("model", type=PATH)
@click.option(
    "-o",
    "--output",
    "destination",
    type=PATH,
    metavar="OUT",
    help="Where the result goes; MODEL_optimized.onnx beside it unless given.",
)
@options_of(OptimizeParams, ValidateParams)
@click.option("--no-validate", is_flag=True, help="Let the result out unproven; its report says so.")
@click.option(
    "--keep-rejected", is_flag=True, help="Keep a result that fails the proof, as OUT.rejected.onnx."
)
@report_option
@output_options
def command(
    model: Path,
    destination: Path | None,
    no_validate: bool,
    keep_rejected: bool,
    report_files: tuple[Path, ...],
    output: Output,
    **options: Any,
) -> int:
    from onnxport.pipelines import runner
    from onnxport.pipelines.jobs import optimization
    from onnxport.pipelines.reports import saving

    with saving(report_files, "optimize") as save:
        with spelled():
            job = optimization(
                model, destination, given(options), validate=not no_validate, keep_rejected=keep_rejected
            )
        report = runner.run(job, "optimize", output.progress(), save, output.arguments)
    output.run(report)
    report.check()
    return report.exit_code
