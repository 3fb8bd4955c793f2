"""What a user may set about a profile: command line options and keyword arguments are this one model."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from onnxport.isolation import RUN_TIMEOUT
from onnxport.shapes import Shapes
from onnxport.validate.params import Preprocess
from onnxport.validate.runtimes.options import THREADS, OrtLevel


class ProfileParams(BaseModel):
    """How a model is profiled."""

    # Deferred: a --help imports this and profiles nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; an open batch is 1 unless given.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    inputs: Path | None = Field(
        default=None,
        description="Folder or file with inputs of your own, as for `validate`; the first set is run.",
        json_schema_extra={"metavar": "DIR"},
    )
    preprocess: Preprocess = Field(
        default={},
        description="How images in --inputs become arrays, as NAME=VALUE; see `validate`.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of the generated inputs.", json_schema_extra={"metavar": "S"}
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
