"""`onnxport diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.custom_operators import library_option
from onnxport.cli.options import options_of, params_from
from onnxport.cli.output import SOURCE, Output, output_options, report_option
from onnxport.core.errors import OnnxportError, UsageError
from onnxport.core.shell_words import quote
from onnxport.validate.debug.params import DebugParams

if TYPE_CHECKING:
    from onnxport.formats.artifact import Artifact
    from onnxport.inspection.comparison import Comparison


@subcommand(
    "diff",
    "onnxport diff model.onnx model_int8.onnx",
    "onnxport diff model.onnx model.tflite",
    "onnxport diff release1.onnx release2.onnx --no-run",
)
@click.argument("first", type=SOURCE)
@click.argument("second", type=SOURCE)
@click.option("--no-run", is_flag=True, help="Compare the files only; do not compare what they compute.")
@options_of(DebugParams)
@library_option
@report_option
@output_options
def command(
    first: Path,
    second: Path,
    no_run: bool,
    report_files: tuple[Path, ...],
    output: Output,
    **options: Any,
) -> int:
    from onnxport.formats.artifact import Artifact
    from onnxport.pipelines.runner import validation
    from onnxport.reports import saving
    from onnxport.reports.comparison.report import DifferenceReport
    from onnxport.reports.comparison.terminal import comparison_lines
    from onnxport.reports.run.terminal import diagnosis_lines, result_lines

    params = params_from(DebugParams, options, purpose="a comparison")
    one, other = Artifact.open(first), Artifact.open(second)
    if one.format != "onnx":
        raise UsageError(
            f"{first} is in {one.format} format, and diff compares an ONNX model with other files",
            fix=f"give the ONNX model first: onnxport diff {quote(second)} {quote(first)}"
            if other.format == "onnx"
            else "",
        )
    with saving(report_files, "diff", subject="comparison") as save:
        found, run = _compare(one, other, params, output), None
        if not no_run:
            # The search for a node reads no packages.
            judged = validation.validate if other.format == "coreml" else validation.debug
            run = judged(one, other, params, progress=output.progress(), arguments=output.arguments)
        report = DifferenceReport(graph=found, run=run)
        save(report)

    def text() -> str:
        lines = comparison_lines(found, all_of_it=output.verbose)
        if run is None:
            return lines
        computed = [result_lines(run, detailed=True)]
        if other.format != "coreml":
            computed.append(diagnosis_lines(run, all_layers=output.verbose))
        return "\n".join((lines, "what they compute", *computed))

    output.result(lambda: report.model_dump_json(indent=2), text)
    return 0


def _compare(one: Artifact, other: Artifact, params: DebugParams, output: Output) -> Comparison:
    from onnxport.formats.model import Model
    from onnxport.pipelines.runner import validation

    model = Model.load(one.path)
    if other.format == "onnx":
        from onnxport.inspection.comparison import compare_models

        found = compare_models(model, Model.load(other.path))
        if found.has_same_nodes:
            return found
        from onnxport.inspection.comparison.rewritten import compare_rewritten

        try:
            sets = validation.input_sets(one, other, params, output.progress())
            return compare_rewritten(model, other, sets, found)
        except OnnxportError as error:
            note = f"nodes were compared by their names and kinds only: {error.what}"
            return found.model_copy(update={"notes": (*found.notes, note)})
    from onnxport.inspection.comparison.forms import compare_forms

    return compare_forms(model, other, validation.input_sets(one, other, params, output.progress()))
