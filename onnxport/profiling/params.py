"""Parameters of a profile: command line options and keyword arguments are this one model."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from onnxport.bench.params import FeedingParams
from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.runtimes.options import THREADS, OrtLevel


class ProfileParams(FeedingParams):
    """Settings of a profile."""

    source: Path | None = Field(
        default=None,
        description="The .onnx file that MODEL was made from; the profile then names its nodes.",
        json_schema_extra={"metavar": "FILE.onnx"},
    )
    runs: int = Field(
        default=50,
        ge=3,
        le=10_000,
        description="Number of runs with the profiler, and of as many runs without it.",
        json_schema_extra={"metavar": "N"},
    )
    warmup: int = Field(
        default=5,
        ge=1,
        le=10_000,
        description="Number of warm-up runs of each kind.",
        json_schema_extra={"metavar": "N"},
    )
    threads: int = Field(
        default=THREADS, ge=1, le=256, description="Kernel threads.", json_schema_extra={"metavar": "N"}
    )
    provider: str | None = Field(
        default=None,
        description="ONNX Runtime's execution provider (default: cpu); for a .tflite file the delegate: "
        "xnnpack (default), or cpu for LiteRT's own kernels.",
        json_schema_extra={"metavar": "NAME"},
    )
    level: OrtLevel = Field(
        default="all", description="ONNX Runtime's graph optimizations, for an .onnx file."
    )
    timeout: float = Field(
        default=RUN_TIMEOUT,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Time limit for loading, and for all runs together, in seconds.",
        json_schema_extra={"metavar": "SECONDS"},
    )

    @field_validator("source")
    @classmethod
    def _is_onnx(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() != ".onnx":
            raise ValueError("give an .onnx file")
        return path
