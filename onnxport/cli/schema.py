"""`onnxport schema`."""

from __future__ import annotations

from onnxport.cli.commands import subcommand
from onnxport.cli.output import Output, output_options


@subcommand("schema", "onnxport schema")
@output_options
def command(output: Output) -> int:
    from onnxport.core.errors import PROVEN
    from onnxport.pipelines.config.json_schema import schema

    document = schema().removesuffix("\n")
    output.result(lambda: document, lambda: document, is_document=True)
    return PROVEN
