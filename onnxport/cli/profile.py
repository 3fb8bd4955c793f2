"""`onnxport profile`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import PATH, SOURCE, Output, output_options, report_option
from onnxport.core.errors import UsageError
from onnxport.profiling.params import ProfileParams


@subcommand(
    "profile",
    "onnxport profile model.onnx",
    "onnxport profile model.tflite --source model.onnx",
    "onnxport profile model.onnx --trace trace.json --report profile.html",
)
@click.argument("model", type=SOURCE)
@click.option(
    "--trace",
    "trace_file",
    type=PATH,
    metavar="FILE.json",
    help="Write all profiled runs to FILE.json in the Trace Event Format, for Perfetto.",
)
@options_of(ProfileParams)
@library_option
@report_option
@output_options
def command(
    model: Path, trace_file: Path | None, report_files: tuple[Path, ...], output: Output, **options: Any
) -> int:
    from onnxport.formats.artifact import Artifact, Staging, writing
    from onnxport.pipelines.runner import measurements
    from onnxport.reports import saving
    from onnxport.reports.profile.terminal import profile_lines

    params = params_from(ProfileParams, options, purpose="a profile")
    if trace_file is not None:
        if trace_file.suffix.lower() != ".json":
            fix = "give the file a name that ends in .json"
            raise UsageError(f"--trace {trace_file} does not end in .json", fix=fix)
        if trace_file.resolve() in {each.resolve() for each in report_files}:
            raise UsageError("--trace and --report name the same file", fix="give each a file of its own")
    with ExitStack() as stack:
        save = stack.enter_context(saving(report_files, "profile", subject="profile"))
        staging = stack.enter_context(Staging(trace_file, "--trace")) if trace_file is not None else None
        found = measurements.profile(Artifact.open(model), params, output.progress(), output.arguments)
        save(found.report)
        if staging is not None and trace_file is not None:
            staged = staging.folder / trace_file.name
            with writing(trace_file, "--trace"):
                staged.write_text(found.trace(), encoding="utf-8")
            staging.commit({staged: trace_file})
    report = found.report
    output.result(
        lambda: report.model_dump_json(indent=2), lambda: profile_lines(report, detailed=output.verbose)
    )
    output.notes(f"note: {note}" for note in report.notes)
    return 0
