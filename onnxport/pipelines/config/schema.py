"""The schema of pipeline.yaml, in the order of the file.

The options of stages, targets, exports and proofs are the params models of their rooms, as on the command line. This
module declares only the keys of a pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from onnxport.core.durations import milliseconds_of
from onnxport.core.memory import bytes_of
from onnxport.pipelines.config.scalars import source_text


def _names(given: object) -> object:
    several = given if isinstance(given, list) else [given]
    return tuple(source_text(each) if isinstance(each, int | float) else each for each in several)


def _version(given: object) -> object:
    if isinstance(given, bool):
        raise ValueError("give 1")
    return given


def _proof(given: object) -> object:
    if isinstance(given, bool | Mapping):
        return given
    raise ValueError("give options of the proof, or false for none")


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Proof = Annotated[Any, BeforeValidator(_proof)]
# In bytes; units are decimal, as a file manager shows them.
Size = Annotated[Any, BeforeValidator(str), AfterValidator(bytes_of)]
Time = Annotated[Any, BeforeValidator(str), AfterValidator(milliseconds_of)]  # in milliseconds

# By the names that `dask worker --resources` gives them.
Resources = dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]
RESOURCES = "What its steps need of a worker of a Dask cluster, as {GPU: 1}; without effect elsewhere."
FROM = "The stage whose result it takes; the model itself unless given."
PROOF = "Options of its proof beside those of the whole pipeline, or false to deliver it unproven."


class Section(BaseModel):
    """Keys of the file; an empty value counts as none."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None}


class _WithOptions(Section):
    """A section whose other keys are options of its stage; options.py checks them."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ModelSpec(Section):
    """A model, or all models that match a pattern."""

    source: str = Field(
        description="An .onnx file, a pattern of files (models/*.onnx), or a source of onnxport export."
    )
    export: dict[str, Any] = Field(default={}, description="Options of onnxport export.")
    validate_: Proof = Field(default={}, alias="validate", description=PROOF)


class StageSpec(_WithOptions):
    """A step that targets share; it runs once per model."""

    use: str = Field(description="The name of the step; its options are further keys.")
    from_: str | None = Field(default=None, alias="from", description=FROM)
    resources: Resources = Field(default={}, description=RESOURCES)
    validate_: Proof = Field(default={}, alias="validate", description=PROOF)


class TargetSpec(_WithOptions):
    """An artefact to make of every model."""

    to: str = Field(description="The format; its options, those of onnxport convert, are further keys.")
    from_: str | None = Field(default=None, alias="from", description=FROM)
    models: Names = Field(default=(), description="The models that it applies to; all unless given.")
    resources: Resources = Field(default={}, description=RESOURCES)
    matrix: dict[str, Any] = Field(
        default={},
        description="Options with a list of values, or from: one artefact per combination.",
    )
    output: str | None = Field(
        default=None,
        description="Path of the artefact; {model}, {target} and the keys of the matrix are filled in.",
    )
    max_size: Size | None = Field(default=None, description="Maximum bytes on disk, as 4MB.")
    max_size_ratio: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Maximum bytes, as a share of the source's."
    )
    max_latency: Time | None = Field(
        default=None, description="Maximum time of a run on the machine that runs the pipeline, as 20ms."
    )
    max_latency_ratio: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Maximum time of a run, as a share of the source's in ONNX Runtime on the same machine.",
    )
    max_load: Time | None = Field(
        default=None, description="Maximum time from the file to a model that can run, as 100ms."
    )
    max_memory: Size | None = Field(
        default=None, description="Maximum memory that runtime and model add to a bare process, as 50MB."
    )
    validate_: Proof = Field(default={}, alias="validate", description=PROOF)


class PipelineSpec(Section):
    """A pipeline.yaml."""

    version: Annotated[Literal[1], BeforeValidator(_version)] = Field(description="Of this schema.")
    include: Any = Field(
        default=None,
        description="Files below the pipeline's folder, whose entries are added unless this file has the same name.",
    )
    model: Any = Field(default=None, description="The only model; its file name is its name.")
    models: Any = Field(default=None, description="The models, by name or as a list.")
    validate_: Proof = Field(
        default={}, alias="validate", description="Options of every proof, or false for none."
    )
    stages: dict[str, Any] = Field(default={}, description="Steps that targets share, by name.")
    targets: dict[str, Any] = Field(description="The artefacts to make, by name.")
    output: str = Field(
        default="build", description="The folder of artefacts without an output of their own."
    )
    diagnose: bool = Field(
        default=True,
        description="Whether to search the ONNX node behind a failed proof, for up to two minutes.",
    )
    reports: Names = Field(
        default=(),
        description="Report files of the run, with a form by suffix, and folders for all forms.",
    )


# What to write for a required key.
NEEDED = {
    "version": "begin with version: 1",
    "targets": "say what to make, as targets: {phone: {to: tflite}}",
    "source": "write source: FILE.onnx",
    "use": "write use: optimize or use: quantize",
    "to": "write to: tflite, coreml, ort or onnx",
}


def keys_of(section: type[Section]) -> list[str]:
    """Return the keys that a section declares, as they are written."""
    return [field.alias or name for name, field in section.model_fields.items()]
