"""The options of validation: one model for YAML keys, command line options and keyword arguments.

Every `--help` imports this module, so it imports little. A field's description is its help text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.core.errors import UsageError
from onnxport.core.memory import Size
from onnxport.core.named_values import Numbers, Settings, Texts
from onnxport.formats.input_shapes import Shapes

GENERATED = 3  # one of each kind of input (samples/generator.py)
READ = 20
STEPS = 4


Several = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


def _check_preprocessing(given: dict[str, str]) -> dict[str, str]:
    """Refuse unknown or impossible settings (UsageError) before anything runs."""
    if given:
        from onnxport.samples.preprocessing import preprocessing

        preprocessing(given)
    return given


# The conversion of images to arrays.
Preprocess = Annotated[Settings, AfterValidator(_check_preprocessing)]


class ValidateParams(BaseModel):
    """The proof that an artefact computes what its reference computes."""

    # A --help imports this model and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; ? leaves a dimension open, "
        "1..8 within bounds, 224|320 for these sizes.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    inputs: Path | None = Field(
        default=None,
        description="Folder with inputs of your own: images, .npz, .npy, .safetensors or .csv files, or ONNX "
        "test_data_set_* folders; or one such file of arrays, or a table.",
        json_schema_extra={"metavar": "DIR"},
    )
    part: Literal["all", "held-back"] = Field(
        default="all",
        description="Whether all of the folder is meant, or what calibration holds back of it (samples/split.py).",
        json_schema_extra={"option": False},
    )
    preprocess_is_shared: bool = Field(
        default=False,
        description="Whether `preprocess` may be for samples to calibrate on alone.",
        json_schema_extra={"option": False},
    )
    samples: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description=f"Sets of inputs: how many to generate ({GENERATED} unless given), "
        f"or to read at most from --inputs ({READ} unless given).",
        json_schema_extra={"metavar": "N"},
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of the generated inputs.", json_schema_extra={"metavar": "S"}
    )
    map: Texts = Field(
        default={},
        description="An input or output that has another name in the candidate, as REFERENCE=CANDIDATE.",
        json_schema_extra={"metavar": "NAME=NAME"},
    )
    rtol: float | None = Field(
        default=None,
        ge=0,
        le=1,  # beyond, an answer of zeros would pass
        allow_inf_nan=False,
        description="Allow differences up to this share of each reference value, not the derived tolerance.",
        json_schema_extra={"metavar": "X"},
    )
    atol: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Allow differences up to this, not the derived tolerance.",
        json_schema_extra={"metavar": "X"},
    )
    accept_inconclusive: bool = Field(
        default=False,
        description="Accept outputs that no input makes vary beyond noise; the verdict is then 'unproven'.",
    )
    budget: Numbers = Field(
        default={},
        description="Limit of a metric against the float original, as NAME=VALUE or OUTPUT:NAME=VALUE; "
        "a metric says itself whether that is the least or the most.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    metric: Several = Field(
        default=(),
        description="A metric of your own, as package.module:function.",
        json_schema_extra={"metavar": "MODULE:FN"},
    )
    accept_quality: bool = Field(
        default=False,
        description="Accept a lower precision whose answers are constant, not finite or below 5 dB SQNR.",
    )
    preprocess: Preprocess = Field(
        default={},
        description="How images in --inputs become arrays, as NAME=VALUE: resize, interpolation, crop, layout, color, "
        "scale, mean, std; a preprocess.yaml in the folder says the same.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    state: Texts = Field(
        default={},
        description="An input that is fed back from an output, as INPUT=OUTPUT; found by name and shape unless given.",
        json_schema_extra={"metavar": "INPUT=OUTPUT"},
    )
    steps: int = Field(
        default=STEPS,
        ge=1,
        le=1000,
        description="Runs in a row of a model whose state is fed back.",
        json_schema_extra={"metavar": "N"},
    )
    timeout: float = Field(
        default=RUN_TIMEOUT,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Seconds that one run of a model may take.",
        json_schema_extra={"metavar": "SECONDS"},
    )
    memory_limit: Size | None = Field(
        default=None,
        description="Memory that running the models may take, their inputs and answers included, as 800MB or 2GB. "
        "[default: a quarter of the machine's, at most 4GB]",
        json_schema_extra={"metavar": "SIZE"},
    )
    reference_runtime: Settings = Field(
        default={},
        description="How the reference is run, as NAME=VALUE: integers, level, provider, threads (ONNX Runtime), "
        "delegate, threads (LiteRT), function, units (Core ML); runtime, which names another: tract, openvino, "
        "ncnn, mnn for .onnx, predict, evaluator for .mlpackage.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    candidate_runtime: Settings = Field(
        default={},
        description="How the candidate is run, likewise: --candidate-runtime level=basic, or runtime=tract.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    report_tensors: Path | None = Field(
        default=None,
        description="Write the tensors of the inputs with the worst element that the report names to FILE.npz, at most "
        "64 MB.",
        json_schema_extra={"metavar": "FILE"},
    )

    @field_validator("inputs", "report_tensors")
    @classmethod
    def _check_path(cls, path: Path | None) -> Path | None:
        if path is not None and "\0" in str(path):
            raise ValueError("give a path without a character 0, which no file's name holds")
        return path

    @field_validator("report_tensors")
    @classmethod
    def _check_suffix(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() != ".npz":
            raise ValueError("give a file that ends in .npz")
        return path

    @model_validator(mode="after")
    def _check_report_path(self) -> Self:
        if self.report_tensors is None or self.inputs is None:
            return self
        if self.inputs.resolve() in self.report_tensors.resolve().parents:
            raise UsageError(
                f"--report-tensors {self.report_tensors} lies among the inputs",
                fix="give a path in another folder",
            )
        return self

    @model_validator(mode="after")
    def _check_inputs_given(self) -> Self:
        if self.preprocess and self.inputs is None:
            raise UsageError("--preprocess is for images in --inputs", fix="give the folder: --inputs DIR")
        return self
