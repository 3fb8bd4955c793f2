"""`onnxport inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.options import given_options, options_of, params_from
from onnxport.cli.output import PATH, SOURCE, Output, output_options, report_option
from onnxport.core.errors import UsageError
from onnxport.deployment.params import DeploymentParams
from onnxport.formats.input_shapes import GivenShape


@subcommand(
    "inspect",
    "onnxport inspect model.onnx",
    "onnxport inspect model.tflite --json",
    "onnxport inspect model.onnx --plan",
    "onnxport inspect model.onnx --runs-on all",
    "onnxport inspect model.onnx --runs-on nnapi,coreml-ep --error-on-fallback",
    "onnxport inspect a.ort --with b.ort --required-operators app.config",
)
@click.argument("model", type=SOURCE)
@options_of(DeploymentParams)
@click.option(
    "--plan",
    is_flag=True,
    help="Show the memory and the multiplications of one run, node by node, without running the model.",
)
@click.option(
    "--with",
    "others",
    type=SOURCE,
    multiple=True,
    metavar="FILE.ort",
    help="Another .ort file of the same app: the build of ONNX Runtime is for both. May be given several times.",
)
@click.option(
    "--required-operators",
    type=PATH,
    metavar="FILE",
    help="File for the list of operators that this build needs (build.sh --include_ops_by_config FILE).",
)
@report_option
@output_options
def command(
    model: Path,
    others: tuple[Path, ...],
    required_operators: Path | None,
    plan: bool,
    report_files: tuple[Path, ...],
    output: Output,
    **options: Any,
) -> int:
    if not options["runs_on"]:
        given = given_options(options)
        sizes = {"shape": given.pop("shape", ())} if plan else {}
        for name in (*given, *(["report"] if report_files else [])):
            fix = "give --runs-on all, or names of runtimes"
            raise UsageError(f"--{name.replace('_', '-')} needs --runs-on", fix=fix)
        shapes = params_from(DeploymentParams, sizes, purpose="inspection").shape if plan else None
        return _inspection(model, others, required_operators, shapes, output)
    if others or required_operators or plan:
        what = "--runs-on cannot be combined with --plan, --with or --required-operators"
        raise UsageError(what, fix="run inspect twice")
    return _deployment(model, output, report_files, options)


def _inspection(
    model: Path,
    others: tuple[Path, ...],
    required: Path | None,
    planned: Mapping[str, GivenShape] | None,
    output: Output,
) -> int:
    from onnxport.inspection import inspect_model
    from onnxport.reports.inspection import inspection_lines

    found = inspect_model(model)
    if found.format == "ort" or others or required:
        from onnxport.inspection.reduced_build import reduced_build

        found = found.model_copy(update={"build": reduced_build((model, *others), required)})
    if planned is not None:
        from onnxport.inspection.memory import plan_memory

        found = found.model_copy(update={"plan": plan_memory(model, planned)})
    output.result(
        lambda: found.model_dump_json(indent=2), lambda: inspection_lines(found, detailed=output.verbose)
    )
    return 0


def _deployment(model: Path, output: Output, files: tuple[Path, ...], options: dict[str, Any]) -> int:
    from onnxport.deployment.analysis import analyze_deployment
    from onnxport.reports import saving
    from onnxport.reports.deployment import terminal

    params = params_from(DeploymentParams, options, purpose="inspection")
    with saving(files, "inspect", subject="deployment") as save:
        report = analyze_deployment(model, params)
        save(report)
    output.result(
        lambda: report.model_dump_json(indent=2), lambda: terminal.lines(report, detailed=output.verbose)
    )
    return report.exit_code
