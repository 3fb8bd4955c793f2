"""`onnxport verify`."""

from __future__ import annotations

from pathlib import Path

import click

from onnxport.cli.commands import subcommand
from onnxport.cli.output import PATH, SOURCE, Output, output_options


@subcommand(
    "verify",
    "onnxport verify build/model/phone.tflite",
    "onnxport verify phone.tflite --lock pipeline.lock --source model.onnx",
    "onnxport verify phone.tflite --attestation phone.tflite.intoto.json",
)
@click.argument("artefact", type=SOURCE)
@click.option(
    "--lock",
    type=PATH,
    metavar="FILE",
    help="The lock of its pipeline. [default: searched beside it and in the folders above]",
)
@click.option(
    "--attestation",
    type=PATH,
    metavar="FILE",
    help="The in-toto statement that --attest wrote; no lock is searched then.",
)
@click.option("--source", type=SOURCE, metavar="MODEL", help="The model, if it is not where the lock says.")
@output_options
def command(
    artefact: Path, lock: Path | None, attestation: Path | None, source: Path | None, output: Output
) -> int:
    if lock is not None and attestation is not None:
        raise click.UsageError("--lock and --attestation exclude each other", click.get_current_context())
    from onnxport.pipelines.lock.verification import verify
    from onnxport.reports.verification import verification_lines

    found = verify(artefact, lock, source, attestation)
    output.result(
        lambda: found.model_dump_json(indent=2), lambda: verification_lines(found, all_of_it=output.verbose)
    )
    found.check()
    return found.exit_code
