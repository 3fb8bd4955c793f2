"""The options of a bench: one model for the command line and for keyword arguments.

Imports little, since every `--help` imports it: a field's description is its help text.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.core.errors import UsageError
from onnxport.formats.input_shapes import Shapes
from onnxport.runtimes.options import THREADS, OrtLevel
from onnxport.validate.params import Preprocess


def _split(given: Any) -> tuple[Any, ...]:
    """Return `1,2` or `("1,2", 4)` as one tuple, each value once."""
    if isinstance(given, str):
        return tuple(dict.fromkeys(part.strip() for part in given.split(",")))
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        values = [part for each in given for part in (_split(each) if isinstance(each, str) else (each,))]
        return tuple(dict.fromkeys(values))
    return (given,)


def _numbers(option: str, most: int) -> BeforeValidator:
    """Return a validator of lists of whole numbers from 1 to `most`."""

    def read(given: Any) -> tuple[int, ...]:
        numbers = tuple(int(each) if str(each).isdecimal() else 0 for each in _split(given))
        for number, text in zip(numbers, _split(given), strict=True):
            if not 1 <= number <= most:
                raise UsageError(
                    f"{option} has the value {str(text)!r}", fix=f"give numbers from 1 to {most}, as 1,2"
                )
        return tuple(dict.fromkeys(numbers))

    return BeforeValidator(read)


def _levels(given: Any) -> tuple[str, ...]:
    for each in _split(given):
        if each not in get_args(OrtLevel):
            known = ", ".join(get_args(OrtLevel))
            raise UsageError(f"--levels has the value {str(each)!r}", fix=f"give some of {known}")
    return _split(given)


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class FeedingParams(BaseModel):
    """The inputs of measured models."""

    # Deferred: --help imports this model and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    inputs: Path | None = Field(
        default=None,
        description="Folder with your own inputs, of which the first is used: images, .npz, .npy, .safetensors or "
        ".csv files, or ONNX test_data_set_* folders; or one such file.",
        json_schema_extra={"metavar": "DIR"},
    )
    preprocess: Preprocess = Field(
        default={},
        description="How images in --inputs become arrays, as NAME=VALUE: resize, interpolation, crop, layout, color, "
        "scale, mean, std; a preprocess.yaml in the folder says the same.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; ? leaves the batch open.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of the generated inputs.", json_schema_extra={"metavar": "S"}
    )

    @model_validator(mode="after")
    def _preprocesses_something(self) -> Self:
        if self.preprocess and self.inputs is None:
            raise UsageError("--preprocess is for images in --inputs", fix="give the folder: --inputs DIR")
        return self


class BenchParams(FeedingParams):
    """The rows of a bench, and how to measure them."""

    runs: int = Field(
        default=100,
        ge=1,
        le=1_000_000,
        description="Least number of timed runs of each row; a fast model has more, 5 ms of them a round.",
        json_schema_extra={"metavar": "N"},
    )
    warmup: int = Field(
        default=10,
        ge=0,
        le=1_000_000,
        description="Untimed runs before; a fast model is warmed up for 0.1 s.",
        json_schema_extra={"metavar": "N"},
    )
    threads: Annotated[tuple[int, ...], _numbers("--threads", 256)] = Field(
        default=(THREADS,),
        description=f"Kernel threads, as 1,2,4: a row for each. [default: {THREADS}]",
        json_schema_extra={"metavar": "N,N"},
    )
    runtimes: Words = Field(
        default=(),
        description="Runtimes, as ort,tract,openvino,ncnn,mnn: a row for each that runs the artefact's format. "
        "[default: ONNX Runtime, LiteRT or Core ML, by the format]",
        json_schema_extra={"metavar": "NAME,NAME"},
    )
    providers: Words = Field(
        default=(),
        description="Execution providers, delegates or compute units, as cpu,xnnpack,cuda: a row for each that the "
        "artefact's runtime has. [default: cpu for ONNX Runtime, xnnpack for LiteRT, all for Core ML]",
        json_schema_extra={"metavar": "NAME,NAME"},
    )
    levels: Annotated[tuple[OrtLevel, ...], BeforeValidator(_levels)] = Field(
        default=("all",),
        description="Graph optimizations of ONNX Runtime, as disable,all: a row for each. [default: all]",
        json_schema_extra={"metavar": "LEVEL,LEVEL"},
    )
    batch: Annotated[tuple[int, ...], _numbers("--batch", 65536)] = Field(
        default=(),
        description="Size of the open batch, as 1,8: a row for each. [default: 1]",
        json_schema_extra={"metavar": "N,N"},
    )
    reference: Path | None = Field(
        default=None,
        description="Model whose outputs the accuracy of each row is measured against. [default: the first .onnx file]",
        json_schema_extra={"metavar": "FILE"},
    )
    timeout: float = Field(
        default=RUN_TIMEOUT,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Most seconds of loading, or of one run.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    against: Path | None = Field(
        default=None,
        description="JSON of an earlier bench on this machine, or an earlier model, which runs in turns with the "
        "others: exit 1 if a row is slower than --max-slowdown allows.",
        json_schema_extra={"metavar": "FILE"},
    )
    max_slowdown: float | None = Field(
        default=None,
        ge=1,
        le=1000,
        allow_inf_nan=False,
        description="Largest ratio of a row's time to the earlier one. Only with --against. [default: 1.1]",
        json_schema_extra={"metavar": "RATIO"},
    )
    force: bool = Field(
        default=False, description="Compare with a baseline of another machine. Only with --against."
    )
    patience: float | None = Field(
        default=None,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Most seconds of further measuring on a busy machine. [default: 6, and 0 without --against where "
        "--runs is below 100]",
        json_schema_extra={"metavar": "SECONDS"},
    )
