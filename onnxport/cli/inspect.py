"""`onnxport inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options


@subcommand("inspect", "onnxport inspect model.onnx", "onnxport inspect model.tflite --json")
@click.argument("model", type=PATH)
@output_options
def command(model: Path, output: Output) -> int:
    from onnxport.inspection import inspect_model
    from onnxport.pipelines.reports.terminal import inspection_lines

    found = inspect_model(model)
    output.result(lambda: found.model_dump_json(indent=2), lambda: inspection_lines(found))
    return 0
