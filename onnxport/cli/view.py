"""`onnxport view`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import click

from onnxport.cli import signals
from onnxport.cli.commands import subcommand
from onnxport.cli.error_output import show_on_stdout
from onnxport.cli.output import PATH, SOURCE, Output, output_options
from onnxport.core.errors import UsageError


@subcommand(
    "view",
    "onnxport view model.onnx model.tflite",
    "onnxport view model.onnx --data profile.json --data debug.json",
    "onnxport view model.onnx --export view/",
)
@click.argument("models", type=SOURCE, nargs=-1, required=True)
@click.option(
    "--data",
    "reports",
    type=SOURCE,
    multiple=True,
    metavar="REPORT.json",
    help="A report of debug, profile or inspect --runs-on, whose findings are shown. May be given several times.",
)
@click.option(
    "--export",
    type=PATH,
    metavar="DIR",
    help="Write the graphs and findings to a new folder, for Google's Model Explorer, and serve nothing.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the page on 127.0.0.1; a free one unless given.",
)
@click.option("--no-browser", is_flag=True, help="Print the address only; open no browser.")
@output_options
def command(
    models: tuple[Path, ...],
    reports: tuple[Path, ...],
    export: Path | None,
    port: int,
    no_browser: bool,
    output: Output,
) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.reports.model_view.overlays import overlays_for

    artifacts = [Artifact.open(model) for model in models]
    overlays = overlays_for(reports, artifacts)
    if export is not None:
        if port or no_browser:
            raise UsageError("--export serves no page", fix="leave --port and --no-browser out")
        from onnxport.reports.model_view.files import export_views

        written = [str(path) for path in export_views(artifacts, overlays, export)]
        output.result(
            lambda: _document(written=written), lambda: "\n".join(f"wrote {path}" for path in written)
        )
        return 0
    from onnxport.reports.model_view.server import ADDRESS, open_server

    with open_server(artifacts, overlays, port) as server:
        address = f"http://{ADDRESS}:{server.server_port}/"
        # Not a result: Ctrl-C, which ends the command, is ignored from there on.
        line = _document(address=address) if output.json else f"{address}   until Ctrl-C"
        show_on_stdout(line, is_document=output.json)
        sys.stdout.flush()
        if not no_browser:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            signals.mark_answered()
    return 0


def _document(**fields: object) -> str:
    import json

    return json.dumps(fields, indent=2)
