"""The schema of pipeline.yaml: what may stand where, in the order in which a reader meets it.

The options of stages, targets, exports and proofs are the params models of their rooms, as they are those of the
command line; what is declared here is what only a pipeline has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _WithOptions(_Section):
    """A section whose other keys are options of what it uses; reading.py holds them to its params model."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ModelSpec(_Section):
    """A model, or all that a pattern finds."""

    source: str = Field(
        description="An .onnx file, a pattern of such (models/*.onnx), or what onnxport export takes."
    )
    export: dict[str, Any] = Field(default={}, description="Options of onnxport export.")
    validate_: dict[str, Any] = Field(
        default={}, alias="validate", description="Options of this model's proofs."
    )


class StageSpec(_WithOptions):
    """A step that targets share: its result is made once for each model."""

    use: str = Field(description="optimize, quantize, or the name of a plugin; its options stand beside it.")
    from_: str | None = Field(
        default=None,
        alias="from",
        description="The stage whose result it takes; the model itself unless given.",
    )
    validate_: dict[str, Any] = Field(default={}, alias="validate", description="Options of its proof.")


class TargetSpec(_WithOptions):
    """An artefact to make of every model."""

    to: str = Field(
        description="tflite, coreml, ort, onnx, or the name of a plugin; its options stand beside it."
    )
    from_: str | None = Field(
        default=None,
        alias="from",
        description="The stage whose result it takes; the model itself unless given.",
    )
    models: Names = Field(default=(), description="The models that it is for; all unless given.")
    matrix: dict[str, tuple[Any, ...]] = Field(
        default={}, description="Options of several values, or from: one artefact for each combination."
    )
    output: str | None = Field(
        default=None,
        description="Where the artefact goes; {model}, {target} and the keys of the matrix are filled in.",
    )
    max_size: str | None = Field(default=None, description="The most bytes on disk, as 4MB.")
    max_size_ratio: float | None = Field(
        default=None, gt=0, description="The most bytes, as a share of the source's."
    )
    max_latency_ratio: float | None = Field(
        default=None,
        gt=0,
        description="The longest run, as a share of the source's in ONNX Runtime on the same machine.",
    )
    validate_: dict[str, Any] = Field(default={}, alias="validate", description="Options of its proof.")


class PipelineSpec(_Section):
    """A pipeline.yaml."""

    version: Literal[1] = Field(description="Of this schema.")
    model: str | ModelSpec | None = Field(
        default=None, description="The only model; its name is that of its file."
    )
    models: dict[str, str | ModelSpec] = Field(default={}, description="The models by name.")
    validate_: dict[str, Any] = Field(default={}, alias="validate", description="Options of every proof.")
    stages: dict[str, StageSpec] = Field(default={}, description="Steps that targets share, by name.")
    targets: dict[str, TargetSpec] = Field(description="What to make, by name.")
    output: Path = Field(
        default=Path("build"), description="The folder of artefacts that name no place of their own."
    )
    diagnose: bool = Field(
        default=True,
        description="Whether the ONNX node behind a failed proof is looked for, for up to two minutes.",
    )
    reports: tuple[str, ...] = Field(default=(), description="Files to write the run's report to, by suffix.")
