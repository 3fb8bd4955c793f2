"""The parameters of each converter: the one source of its CLI options, Python keywords and YAML keys.

Every `--help` imports this module, so its imports are few. A field's description is its help text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from onnxport.converters.app_metadata import Functions, Images, Labels, Normalizations
from onnxport.core.named_values import Entries, Texts
from onnxport.formats.input_shapes import Shapes

Layout = Literal["keep", "nhwc"]
Route = Literal["auto", "direct", "onnx2tf"]
QuantizedPrecision = Literal["int8", "int16x8"]
Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-weights", "int4-weights", "int8", "int16x8"]
Io = Literal["float", "int8", "uint8"]
CoremlPrecision = Literal["fp32", "fp16", "mixed", "int8", "int16x8"]
AnyPrecision = Precision | CoremlPrecision
# Precisions that keep the scales of the model's activations.
QUANTIZED: frozenset[str] = frozenset(get_args(QuantizedPrecision))
CoremlWeights = Literal[
    "int8", "int4", "palette8", "palette6", "palette4", "palette3", "palette2", "palette1", "sparse50", "sparse75",
    "sparse90",
]  # fmt: skip
ComputeUnits = Literal["all", "cpuOnly", "cpuAndGPU", "cpuAndNeuralEngine"]
CoremlTarget = Literal["iOS15", "iOS16", "iOS17", "iOS18", "iOS26"]
OrtPrecision = Literal["fp16", "int8", "int16x8"]
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
        description="The converter: our own (direct), onnx2tf in a process of its own, or onnx2tf only for models that "
        "ours refuses (auto), if it is installed.",
    )
    allow_custom_ops: bool = Field(
        default=False,
        description="Keep operators of unknown domains as TFLite custom operators; the result is not run, so unproven.",
    )
    onnx2tf: Path | None = Field(
        default=None,
        exclude=True,  # from the provenance: the same bytes for every path
        description="The onnx2tf command in an environment of its own; the one on PATH by default.",
        json_schema_extra={"metavar": "PATH"},
    )
    precision: Precision | None = Field(
        default=None,
        description="Precision of weights and arithmetic; the model's own by default. fp16, int8-weights and "
        "int4-weights store weights in that type and compute in float32; int8-dynamic multiplies int8 weights in int8; "
        "int8 and int16x8 quantize with --calib, or take a model of that precision.",
    )
    io: Io = Field(
        default="float",
        description="Type of a quantized model's float inputs and outputs: float, or its own 8-bit integers, with "
        "their scales in the file.",
    )
    labels: Labels = Field(
        default={},
        description="File with one label a line, packed into the model with TFLite metadata that apps read; "
        "as OUTPUT=FILE where several outputs are of its length.",
        json_schema_extra={"metavar": "[OUTPUT=]FILE"},
    )
    normalization: Normalizations = Field(
        default={},
        description="How apps normalize an input, (x - mean) / std, for the TFLite metadata only: INPUT=MEAN/STD, each "
        "one number or one for each channel.",
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
        description="Precision of weights and arithmetic; the model's own by default. fp16 computes in float16, except "
        "values that overflow on the samples; mixed also keeps norms, powers and sums in float32; int8 and int16x8 "
        "quantize with --calib, or take a model of that precision.",
    )
    minimum_target: CoremlTarget = Field(
        default="iOS17",
        description="The oldest system that must run the model (iOS17 is macOS 14); it limits the operators.",
    )
    weights: CoremlWeights | None = Field(
        default=None,
        description="Weights in fewer bits: integers with a scale per channel (int8) or block (int4), palettes of "
        "2^bits values (palette8, 6, 4, 3, 2, 1), or that many % of them, the smallest, set to 0 (sparse50, 75, 90).",
        json_schema_extra={"metavar": "WORD"},
    )
    image: Images = Field(
        default={},
        description="An input that apps give as a picture, as INPUT=scale:1/255,bias:-0.5,layout:RGB: the model gets "
        "scale * pixel + bias.",
        json_schema_extra={"metavar": "INPUT=SETTINGS"},
    )
    labels: Labels = Field(
        default={},
        description="File with one label a line: the package gives the label of the largest score, and every label's; "
        "as OUTPUT=FILE where several outputs are of its length.",
        json_schema_extra={"metavar": "[OUTPUT=]FILE"},
    )
    author: str | None = Field(default=None, description="The author, as Xcode shows it.")
    license: str | None = Field(default=None, description="The license, as Xcode shows it.")
    model_version: str | None = Field(default=None, description="The model's version, as Xcode shows it.")
    description: str | None = Field(default=None, description="What the model does, as Xcode shows it.")
    metadata: Entries = Field(
        default={},
        description="Your own entry for the package, as KEY=TEXT.",
        json_schema_extra={"metavar": "KEY=TEXT"},
    )
    compute_units: ComputeUnits | None = Field(
        default=None,
        description="Where the model should run; a hint in the package for the app, which chooses.",
    )
    state: Texts = Field(
        default={},
        description="An input that gets its value from an output, as INPUT=OUTPUT: a Core ML state (iOS18), kept in "
        "float16 between predictions.",
        json_schema_extra={"metavar": "INPUT=OUTPUT"},
    )
    function: Functions = Field(
        default={},
        exclude=True,  # from the provenance: each function's note has the digest of its model
        description="Another model as a function of the same package (iOS18), as NAME=MODEL.onnx; the first model "
        "is the function main. Equal weights are stored once.",
        json_schema_extra={"metavar": "NAME=MODEL"},
    )


class OrtParams(BaseModel):
    """ONNX to ONNX Runtime format."""

    # Deferred: a --help imports this and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    precision: OrtPrecision | None = Field(
        default=None,
        description="Precision of weights and arithmetic; the model's own by default. fp16 computes in float16, except "
        "values that overflow on the samples; int8 and int16x8 quantize with --calib, or take a model of that "
        "precision.",
    )
    level: OrtLevel = Field(
        default="all",
        description="ONNX Runtime's graph optimizations that are saved into the file; those for this machine's CPU "
        "only are always left out.",
    )


PARAMS: Mapping[str, type[BaseModel]] = {"tflite": TfliteParams, "coreml": CoremlParams, "ort": OrtParams}
