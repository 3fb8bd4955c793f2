"""`onnxport quantize`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from onnxport.cli.artifact_command import ArtifactRequest, makes_artifact
from onnxport.cli.commands import subcommand
from onnxport.cli.options import options_of
from onnxport.cli.output import SOURCE
from onnxport.core.errors import UsageError
from onnxport.quantize.params import PRECISIONS, QuantizeParams
from onnxport.validate.params import ValidateParams

_MEANINGS = {
    "int8": "8-bit integers for weights and activations; needs --calib.",
    "int16x8": "16-bit activations with 8-bit weights; needs --calib.",
    "dynamic": "8-bit weights, and 8-bit activations with scales computed at run time.",
    "fp16": "float16, except for what overflows in it.",
    "bf16": "bfloat16.",
    "int8-weights": "8-bit weights only.",
    "int4-weights": "4-bit weights only, with a scale per block.",
}


def _precision_options(function: Callable[..., int]) -> Callable[..., int]:
    for name in reversed(PRECISIONS):
        option = click.option(f"--{name}", "precisions", flag_value=name, multiple=True, help=_MEANINGS[name])
        function = option(function)
    return function


@subcommand(
    "quantize",
    "onnxport quantize model.onnx --int8 --calib samples/",
    "onnxport quantize model.onnx --int8 --calib samples/ --budget sqnr=25",
    "onnxport quantize model.onnx --dynamic",
    "onnxport quantize model.onnx --fp16 --inputs samples/",
)
@click.argument("model", type=SOURCE)
@_precision_options
@makes_artifact(
    options_of(QuantizeParams, ValidateParams),
    where="The file to write, or a folder for it; MODEL_<precision>.onnx beside MODEL unless given.",
    timed=True,
    defines=True,
)
def command(model: Path, precisions: tuple[str, ...], request: ArtifactRequest) -> int:
    from onnxport.pipelines.runner.jobs import quantization

    if len(precisions) > 1:
        what = f"--{precisions[0]} and --{precisions[1]} exclude each other"
        raise UsageError(what, fix="give one of them")
    return request.run("quantize", quantization, model, precisions[0] if precisions else None)
