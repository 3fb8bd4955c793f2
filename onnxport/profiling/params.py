"""What a user may set about a profile: command line options and keyword arguments are this one model."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from onnxport.bench.params import FeedingParams
from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.runtimes.options import THREADS, OrtLevel


class ProfileParams(FeedingParams):
    """How a model is profiled."""

    source: Path | None = Field(
        default=None,
        description="The .onnx file that MODEL was made from: nodes are told by its names.",
        json_schema_extra={"metavar": "FILE.onnx"},
    )
    runs: int = Field(
        default=50,
        ge=3,
        le=10_000,
        description="Runs with the profiler, and as many without it.",
        json_schema_extra={"metavar": "N"},
    )
    warmup: int = Field(
        default=5,
        ge=1,
        le=10_000,
        description="Runs before those, of either kind.",
        json_schema_extra={"metavar": "N"},
    )
    threads: int = Field(
        default=THREADS, ge=1, le=256, description="Kernel threads.", json_schema_extra={"metavar": "N"}
    )
    provider: str | None = Field(
        default=None,
        description="ONNX Runtime's execution provider, cpu unless given; of a .tflite file its delegate, "
        "xnnpack unless given, or cpu for LiteRT's own kernels.",
        json_schema_extra={"metavar": "NAME"},
    )
    level: OrtLevel = Field(
        default="all", description="ONNX Runtime's graph optimizations, of an .onnx file."
    )
    timeout: float = Field(
        default=RUN_TIMEOUT,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Seconds that loading, or all runs together, may take.",
        json_schema_extra={"metavar": "SECONDS"},
    )

    @field_validator("source")
    @classmethod
    def _is_onnx(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() != ".onnx":
            raise ValueError("give an .onnx file")
        return path
