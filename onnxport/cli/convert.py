"""`onnxport convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.options import given, options_of, spelled
from onnxport.cli.output import PATH, Output, latency_option, output_options, report_option
from onnxport.pipelines.stages import TARGETS
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
)
@click.argument("model", type=PATH)
@click.option("--to", required=True, type=click.Choice(list(TARGETS)), help="The format to make.")
@click.option(
    "-o",
    "--output",
    "destination",
    type=PATH,
    metavar="OUT",
    help="Where the result goes; beside MODEL, with the suffix of its format, unless given.",
)
@options_of(
    ValidateParams,
    targets={name: stage.params for name, stage in TARGETS.items()},
    conditional={"--calib": calibrated_fields()},
)
@click.option("--no-validate", is_flag=True, help="Let the result out unproven; its report says so.")
@click.option("--keep-rejected", is_flag=True, help="Keep a result that fails the proof, as OUT.rejected.*.")
@latency_option
@report_option
@output_options
def command(
    model: Path,
    to: str,
    destination: Path | None,
    no_validate: bool,
    keep_rejected: bool,
    no_latency: bool,
    report_files: tuple[Path, ...],
    output: Output,
    **options: Any,
) -> int:
    from onnxport.pipelines import runner
    from onnxport.pipelines.jobs import conversion
    from onnxport.pipelines.reports import saving

    with saving(report_files, "convert") as save:
        with spelled():
            job = conversion(
                model,
                to,
                destination,
                given(options),
                validate=not no_validate,
                keep_rejected=keep_rejected,
                latency=not no_latency,
            )
        report = runner.run(job, "convert", output.progress(), save, output.arguments)
    output.run(report)
    report.check()
    return report.exit_code
