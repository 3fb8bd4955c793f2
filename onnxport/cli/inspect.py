"""`onnxport inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options


@subcommand(
    "inspect",
    "onnxport inspect model.onnx",
    "onnxport inspect model.tflite --json",
    "onnxport inspect a.ort --with b.ort --required-operators app.config",
)
@click.argument("model", type=PATH)
@click.option(
    "--with",
    "others",
    type=PATH,
    multiple=True,
    metavar="FILE.ort",
    help="Another .ort file that the same app has: the build of ONNX Runtime is for both. May be given often.",
)
@click.option(
    "--required-operators",
    type=PATH,
    metavar="FILE",
    help="Where to write the list of operators that this build needs (build.sh --include_ops_by_config FILE).",
)
@output_options
def command(model: Path, others: tuple[Path, ...], required_operators: Path | None, output: Output) -> int:
    from onnxport.inspection import inspect_model
    from onnxport.pipelines.reports.terminal import inspection_lines

    found = inspect_model(model)
    if found.format == "ort" or others or required_operators:
        from onnxport.inspection.reduced_build import reduced_build

        found = found.model_copy(update={"build": reduced_build((model, *others), required_operators)})
    output.result(lambda: found.model_dump_json(indent=2), lambda: inspection_lines(found))
    return 0
