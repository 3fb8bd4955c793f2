"""`onnxport run`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options


@subcommand("run", "onnxport run pipeline.yaml", "onnxport run pipeline.yaml --target phone")
@click.argument("pipeline", type=PATH)
@click.option(
    "--target", "targets", multiple=True, metavar="NAME", help="Only this target. Several times for several."
)
@output_options
def command(pipeline: Path, targets: tuple[str, ...], output: Output) -> int:
    from onnxport.cli.failures import explain
    from onnxport.pipelines.outcome import FailureRecord
    from onnxport.pipelines.running.run import run

    def explained(error: Exception) -> FailureRecord:
        return FailureRecord(**vars(explain(error)))

    report = run(
        pipeline, targets=targets, explain=explained, progress=output.progress(), arguments=output.arguments
    )
    output.result(
        lambda: report.model_dump_json(indent=2),
        lambda: "\n".join(f"{cell.name}   {cell.verdict}   {cell.path}" for cell in report.cells),
    )
    return report.exit_code
