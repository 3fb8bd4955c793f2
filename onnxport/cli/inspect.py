"""`onnxport inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.options import given, options_of, spelled
from onnxport.cli.output import PATH, Output, output_options, report_option
from onnxport.deployment.params import DeploymentParams
from onnxport.errors import UsageError


@subcommand(
    "inspect",
    "onnxport inspect model.onnx",
    "onnxport inspect model.tflite --json",
    "onnxport inspect model.onnx --runs-on all",
    "onnxport inspect model.onnx --runs-on nnapi,coreml-ep --error-on-fallback",
)
@click.argument("model", type=PATH)
@options_of(DeploymentParams)
@report_option
@output_options
def command(model: Path, output: Output, report_files: tuple[Path, ...], **options: Any) -> int:
    if options["runs_on"]:
        return _deployment(model, output, report_files, options)
    if unused := [*given(options), *(["report"] if report_files else [])]:
        option = f"--{unused[0].replace('_', '-')}"
        raise UsageError(
            f"{option} is about where a model runs", fix="give --runs-on all, or names of runtimes"
        )
    return _inspection(model, output)


def _inspection(model: Path, output: Output) -> int:
    from onnxport.inspection import inspect_model
    from onnxport.pipelines.reports.terminal import inspection_lines

    found = inspect_model(model)
    output.result(lambda: found.model_dump_json(indent=2), lambda: inspection_lines(found))
    return 0


def _deployment(model: Path, output: Output, files: tuple[Path, ...], options: dict[str, Any]) -> int:
    from onnxport.deployment.deploying import deployment
    from onnxport.pipelines.reports import saving
    from onnxport.pipelines.reports.deployment import terminal
    from onnxport.pipelines.stages import params_of

    with spelled():
        params = params_of(DeploymentParams, given(options), purpose="inspection")
    with saving(files, "inspect", package=terminal.__package__) as save:
        report = deployment(model, params)
        save(report)
    output.result(
        lambda: report.model_dump_json(indent=2), lambda: terminal.lines(report, detailed=output.verbose)
    )
    return report.exit_code
