"""`onnxport bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxport.bench.params import BenchParams
from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.error_output import show_on_stderr
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import SOURCE, Output, output_options, report_option
from onnxport.core.errors import PROVEN, printable


@subcommand(
    "bench",
    "onnxport bench model.onnx model.tflite model_int8.onnx",
    "onnxport bench model.onnx --threads 1,2 --batch 1,8 --json",
    "onnxport bench a.onnx b.tflite --inputs samples/ --report bench.html",
)
@click.argument("models", type=SOURCE, nargs=-1, required=True, metavar="MODEL...")
@options_of(BenchParams)
@library_option
@report_option
@output_options
def command(models: tuple[Path, ...], report_files: tuple[Path, ...], output: Output, **options: Any) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.pipelines.runner import measurements
    from onnxport.reports import saving
    from onnxport.reports.bench.terminal import bench_lines, failures

    params = params_from(BenchParams, options, purpose="a bench")
    artifacts = [Artifact.open(model) for model in models]
    with saving(report_files, "bench", subject="bench") as save:
        report = measurements.bench(artifacts, params, output.progress(), output.arguments)
        save(report)
    output.result(lambda: report.model_dump_json(indent=2), lambda: bench_lines(report))
    output.notes(f"note: {note}" for note in report.notes)
    if report.exit_code != PROVEN:
        for failure in failures(report):
            show_on_stderr(printable(f"error: {failure}"))
        show_on_stderr(f"exit {report.exit_code}")
    return report.exit_code
