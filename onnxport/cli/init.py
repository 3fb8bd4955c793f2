"""`onnxport init`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, Output, output_options
from onnxport.core.errors import printable


@subcommand(
    "init",
    "onnxport init model.onnx",
    "onnxport init --ci gitlab",
    "onnxport init model.onnx -o ci/pipeline.yaml",
)
@click.argument("model", required=False)
@click.option(
    "-o",
    "--output",
    "destination",
    type=PATH,
    default=Path("pipeline.yaml"),
    metavar="FILE",
    help="The file to write. [default: pipeline.yaml]",
)
@click.option(
    "--ci",
    type=click.Choice(["github", "gitlab", "none"]),
    help="The CI whose workflow is written too. [default: that of the project's host]",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@output_options
def command(model: str | None, destination: Path, ci: Any, force: bool, output: Output) -> int:
    from onnxport.pipelines.init.project import create_project

    begun = create_project(model, destination, ci, force=force, progress=output.progress())
    document = {
        "written": [str(path) for path in begun.written],
        "models": begun.models,
        "targets": begun.targets,
        "notes": begun.notes,
        "next": begun.command,
    }
    made = f" ({', '.join(begun.models)} to {', '.join(begun.targets)})" if begun.models else ""
    first, *others = begun.written
    lines = [f"wrote {first}{made}", *(f"wrote {path}" for path in others), f"next: {begun.command}"]
    output.result(lambda: json.dumps(document, indent=2), lambda: "\n".join(map(printable, lines)))
    output.notes(begun.notes)
    return 0
