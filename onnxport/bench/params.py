"""The options of `onnxport bench`, and those that it shares with `profile`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.core.durations import Duration
from onnxport.core.errors import UsageError
from onnxport.core.option_types import Names, Params, Seconds, Seed, Size, option
from onnxport.formats.input_paths import InputPath
from onnxport.runtimes.feeding_options import Inputs, Preprocess, Shape, check_preprocess
from onnxport.runtimes.options import THREADS, OrtLevel


def _split(given: Any) -> tuple[Any, ...]:
    """Return `1,2` or `("1,2", 4)` as one tuple, each value once."""
    if isinstance(given, str):
        return tuple(dict.fromkeys(part.strip() for part in given.split(",")))
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        values = [part for each in given for part in (_split(each) if isinstance(each, str) else (each,))]
        return tuple(dict.fromkeys(values))
    return (given,)


def _numbers(name: str, most: int) -> BeforeValidator:
    """Return the validator of a list of whole numbers from 1 to `most`."""

    def read(given: Any) -> tuple[int, ...]:
        numbers = tuple(int(each) if str(each).isdecimal() else 0 for each in _split(given))
        for number, text in zip(numbers, _split(given), strict=True):
            if not 1 <= number <= most:
                raise UsageError(
                    f"{name}: {str(text)!r} is not allowed", fix=f"give numbers from 1 to {most}, as 1,2"
                )
        return tuple(dict.fromkeys(numbers))

    return BeforeValidator(read)


def _levels(given: Any) -> tuple[str, ...]:
    for each in _split(given):
        if each not in get_args(OrtLevel):
            known = ", ".join(get_args(OrtLevel))
            raise UsageError(f"--levels: {str(each)!r} is not allowed", fix=f"give some of {known}")
    return _split(given)


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class FeedingParams(Params):
    """The inputs of a measured model."""

    inputs: Inputs = option(
        "Folder with your own inputs; the first one is timed: images, .npz, .npy, .safetensors, .csv or .wav files, or "
        "ONNX test_data_set_* folders; or one such file.",
        default=None,
    )
    preprocess: Preprocess = Field(default={})
    shape: Shape = option(
        "Size of an input with open dimensions, as NAME=1,3,224,224; ? keeps the batch open.", default={}
    )
    seed: Seed = 0

    @model_validator(mode="after")
    def _has_inputs_to_preprocess(self) -> Self:
        check_preprocess(self.preprocess, self.inputs)
        return self


class BenchParams(FeedingParams):
    """The settings of a measurement."""

    runs: int = option(
        "Timed runs per row, at least. A fast model gets more runs, to fill 5 ms a round.",
        default=100,
        metavar="N",
        ge=1,
        le=1_000_000,
    )
    warmup: int = option(
        "Runs before the timed ones. A fast model is warmed up for 0.1 s.",
        default=10,
        metavar="N",
        ge=0,
        le=1_000_000,
    )
    threads: Annotated[tuple[int, ...], _numbers("--threads", 256)] = option(
        f"Kernel threads, as 1,2,4: one row for each. [default: {THREADS}]", default=(THREADS,), metavar="N,N"
    )
    runtimes: Words = option(
        "Runtimes, as ort,ort-webgpu,tract,openvino,ncnn,mnn or litert,litert-gpu: one row for each that runs the "
        "artefact's format. Unless given, ONNX Runtime, LiteRT and Core ML run their own formats.",
        default=(),
        metavar="NAME,NAME",
    )
    providers: Words = option(
        "Execution providers, delegates or compute units, as cpu,xnnpack,cuda: one row for each that the artefact's "
        "runtime knows. Unless given, ONNX Runtime uses cpu, LiteRT xnnpack and Core ML all.",
        default=(),
        metavar="NAME,NAME",
    )
    levels: Annotated[tuple[OrtLevel, ...], BeforeValidator(_levels)] = option(
        "Graph optimizations of ONNX Runtime, as disable,all: one row for each. [default: all]",
        default=("all",),
        metavar="LEVEL,LEVEL",
    )
    batch: Annotated[tuple[int, ...], _numbers("--batch", 65536)] = option(
        "Size of the open batch, as 1,8: one row for each; 1 unless given.", default=(), metavar="N,N"
    )
    reference: InputPath | None = option(
        "Model against which the accuracy of each row is measured; the first .onnx file unless given.",
        default=None,
        metavar="FILE",
    )
    timeout: Seconds = option("Maximum seconds for loading, or for one run.", default=RUN_TIMEOUT)
    device: str | None = option(
        "Measure on another machine: adb:SERIAL or ssh:HOST. Needs --device-binary.",
        default=None,
        metavar="DEVICE",
    )
    device_binary: Names = option(
        "Benchmark tool built for the device, LiteRT's benchmark_model or onnxruntime_perf_test: its file, or a folder "
        "with it and its libraries. Once for each runtime.",
        default=(),
        metavar="PATH",
    )
    device_arguments: str = option(
        "Further arguments for the tool on the device, as one text.", default="", metavar="TEXT"
    )
    against: InputPath | None = option(
        "JSON of an earlier bench on this machine, or of results measured elsewhere; or an earlier model, which then "
        "runs in turns with the others. Exit 1 if a row is slower than --max-slowdown allows.",
        default=None,
        metavar="FILE",
    )
    max_slowdown: float | None = option(
        "Maximum time of a row, as a multiple of the baseline's. Only with --against. [default: 1.1]",
        default=None,
        metavar="RATIO",
        ge=1,
        le=1000,
        allow_inf_nan=False,
    )
    max_latency: Duration | None = option("Maximum p50 of every row, as 20ms.", default=None, metavar="TIME")
    max_load: Duration | None = option(
        "Maximum load time of every row, as 100ms.", default=None, metavar="TIME"
    )
    max_memory: Size | None = option(
        "Maximum memory that runtime and model add to the bare process, as 50MB.",
        default=None,
        metavar="SIZE",
    )
    max_size: Size | None = option(
        "Maximum bytes on disk of every row, as 5MB.", default=None, metavar="SIZE"
    )
    force: bool = option("Compare with a baseline of another machine. Only with --against.", default=False)
    patience: float | None = option(
        "Seconds to go on measuring where a busy machine makes the result unclear. [default: 6, and none without "
        "--against where --runs is below 100]",
        default=None,
        metavar="SECONDS",
        ge=0,
        le=86_400,
        allow_inf_nan=False,
    )
