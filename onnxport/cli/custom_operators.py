"""The options about operators that only the user knows."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.output import PATH, SOURCE


def _use(context: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> None:
    if paths:
        from onnxport.runtimes.custom_libraries import use_libraries

        use_libraries(paths)


library_option = click.option(
    "--custom-ops-library",
    "custom_ops_library",
    type=PATH,
    multiple=True,
    metavar="FILE",
    expose_value=False,
    callback=_use,
    help="Library of ONNX Runtime custom operators, for all models that ONNX Runtime runs. It is native code.",
)
operators_option = click.option(
    "--operators",
    type=SOURCE,
    metavar="FILE",
    help="Definitions of the model's own operators as ONNX functions: a text file in ONNX's form, or an .onnx file.",
)
