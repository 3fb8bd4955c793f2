"""The options of `onnxport profile`."""

from __future__ import annotations

from pathlib import Path

from pydantic import field_validator

from onnxport.bench.params import FeedingParams
from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.core.option_types import Seconds, option
from onnxport.formats.input_paths import InputPath
from onnxport.runtimes.options import THREADS, OrtLevel


class ProfileParams(FeedingParams):
    """The settings of a profile."""

    source: InputPath | None = option(
        "The .onnx file that MODEL was made from. The profile then shows its node names.",
        default=None,
        metavar="FILE.onnx",
    )
    runs: int = option(
        "Runs with the profiler, and as many without it.", default=50, metavar="N", ge=3, le=10_000
    )
    warmup: int = option(
        "Warm-up runs before each of the two series.", default=5, metavar="N", ge=1, le=10_000
    )
    threads: int = option("Kernel threads.", default=THREADS, metavar="N", ge=1, le=256)
    provider: str | None = option(
        "ONNX Runtime's execution provider, cpu unless given. For a .tflite file its delegate: xnnpack unless given, "
        "or cpu for LiteRT's own kernels.",
        default=None,
        metavar="NAME",
    )
    level: OrtLevel = option("ONNX Runtime's graph optimizations, for an .onnx file.", default="all")
    timeout: Seconds = option("Maximum seconds for loading, or for all runs together.", default=RUN_TIMEOUT)

    @field_validator("source")
    @classmethod
    def _is_onnx(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() != ".onnx":
            raise ValueError("give an .onnx file")
        return path
