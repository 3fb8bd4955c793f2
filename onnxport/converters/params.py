"""What a user may ask of each converter: the one source of its CLI options, Python keywords and YAML keys.

Light on purpose, since every `--help` imports it: a field's description is its help text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from onnxport.converters.describing import Labels, Normalizations
from onnxport.pairs import Texts
from onnxport.shapes import Shapes

Layout = Literal["keep", "nhwc"]
Route = Literal["auto", "direct", "onnx2tf"]
Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-weights", "int4-weights", "int8", "int16x8"]
Io = Literal["float", "int8", "uint8"]
CoremlPrecision = Literal["fp32", "fp16", "mixed"]
CoremlTarget = Literal["iOS15", "iOS16", "iOS17", "iOS18", "iOS26"]
OrtLevel = Literal["disable", "basic", "extended", "all"]


class TfliteParams(BaseModel):
    """ONNX to TFLite."""

    # Deferred: a --help imports this and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; ? leaves a dimension open, "
        "1..8 within bounds, 224|320 for these sizes.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    layout: Layout = Field(
        default="keep",
        description="Layout of image inputs and outputs: as the model has them, or channels last, "
        "which saves the transposes at the borders.",
    )
    route: Route = Field(
        default="auto",
        description="Who converts: our own lowering (direct), onnx2tf out of process, or onnx2tf only for what "
        "ours refuses (auto), where it is found.",
    )
    allow_custom_ops: bool = Field(
        default=False,
        description="Keep operators of unknown domains as TFLite custom operators; the result is not run, so unproven.",
    )
    onnx2tf: Path | None = Field(
        default=None,
        exclude=True,  # of the artefact's provenance: the same bytes wherever it lies
        description="The onnx2tf command of an environment of its own; the one on PATH unless given.",
        json_schema_extra={"metavar": "PATH"},
    )
    precision: Precision | None = Field(
        default=None,
        description="Precision of weights and arithmetic, as the model has them by default. fp16, int8-weights and "
        "int4-weights store weights so and compute in float32; int8-dynamic multiplies int8 weights in int8; int8 and "
        "int16x8 take models that are quantized so.",
    )
    io: Io = Field(
        default="float",
        description="Float inputs and outputs of a quantized model: as they are, or as the 8-bit integers that it "
        "makes of them, with their scales in the file.",
    )
    labels: Labels = Field(
        default={},
        description="File with one label a line, packed into the model with TFLite metadata that apps read; "
        "as OUTPUT=FILE where several outputs are of its length.",
        json_schema_extra={"metavar": "[OUTPUT=]FILE"},
    )
    normalization: Normalizations = Field(
        default={},
        description="How apps normalize an input, (x - mean) / std, for the TFLite metadata: INPUT=MEAN/STD, each one "
        "number or one for each channel. Nothing is computed with it.",
        json_schema_extra={"metavar": "INPUT=MEAN/STD"},
    )


class CoremlParams(BaseModel):
    """ONNX to Core ML."""

    # Deferred: a --help imports this and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; ? leaves a dimension open, "
        "1..8 within bounds, 224|320 for these sizes.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    precision: CoremlPrecision | None = Field(
        default=None,
        description="Precision of weights and arithmetic, as the model has them by default. fp16 computes in float16; "
        "mixed also keeps in float32 what would overflow in it on the samples.",
    )
    minimum_target: CoremlTarget = Field(
        default="iOS17",
        description="The oldest system that is to run the model (iOS17 is macOS 14), which decides what it may use.",
    )
    state: Texts = Field(
        default={},
        description="An input that is fed back from an output, as INPUT=OUTPUT: a state of Core ML's (iOS18), which "
        "keeps it in float16 between predictions.",
        json_schema_extra={"metavar": "INPUT=OUTPUT"},
    )


class OrtParams(BaseModel):
    """ONNX to ONNX Runtime format."""

    # Deferred: a --help imports this and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    level: OrtLevel = Field(
        default="all",
        description="ONNX Runtime's graph optimizations saved into the file; what only suits "
        "the CPU of this machine is left out at every level.",
    )
