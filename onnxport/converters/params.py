"""The options of each target of `onnxport convert`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from onnxport.converters.app_metadata import Functions, Images, Labels, Normalizations
from onnxport.core.errors import UsageError
from onnxport.core.named_values import Entries, Texts
from onnxport.core.option_types import Params, option, split_words
from onnxport.runtimes.feeding_options import Shape
from onnxport.runtimes.options import OrtLevel

Layout = Literal["keep", "nhwc"]
Route = Literal["auto", "direct", "onnx2tf"]
QuantizedPrecision = Literal["int8", "int16x8"]
Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-weights", "int4-weights", "int8", "int16x8"]
Io = Literal["float", "int8", "uint8"]
CoremlPrecision = Literal["fp32", "fp16", "mixed", "int8", "int16x8"]
AnyPrecision = Precision | CoremlPrecision
# Precisions that keep the scales of activations that a model has.
QUANTIZED: frozenset[str] = frozenset(get_args(QuantizedPrecision))
CoremlWeights = Literal[
    "int8", "int4", "palette8", "palette6", "palette4", "palette3", "palette2", "palette1", "sparse50", "sparse75",
    "sparse90",
]  # fmt: skip
Accelerator = Literal["gpu"]
ComputeUnits = Literal["all", "cpuOnly", "cpuAndGPU", "cpuAndNeuralEngine"]
CoremlTarget = Literal["iOS15", "iOS16", "iOS17", "iOS18", "iOS26"]
OrtPrecision = Literal["fp16", "int8", "int16x8"]
DynamicQuantization = Literal["float", "keep"]
# What LiteRT's GPU runtime (2.3.0) refuses of every model.
_NOT_ON_GPU: Mapping[str, str] = {
    **dict.fromkeys(
        ("int8-weights", "int4-weights"), "it dequantizes no weights with a scale per channel or block"
    ),
    "int16x8": "its integers have 8 bits",
}
Accelerators = Annotated[tuple[Accelerator, ...], BeforeValidator(split_words)]
WebAccelerators = Annotated[tuple[Literal["webgpu"], ...], BeforeValidator(split_words)]


# The field of both targets: one option.
_DynamicQuantization = Annotated[
    DynamicQuantization | None,
    option(
        "A model's run-time quantization (DynamicQuantizeLinear): float computes without it, keep writes it exactly, "
        "in small operators that take longer. Unless given it is float, and refused below 10 dB SQNR.",
    ),
]


class TfliteParams(Params):
    """ONNX to TFLite."""

    shape: Shape = Field(default={})
    layout: Layout = option(
        "Layout of image inputs and outputs: as in the model, or channels last, which saves the transposes at the "
        "borders.",
        default="keep",
    )
    route: Route = option(
        "The converter: our own lowering (direct), onnx2tf out of process, or onnx2tf only for what ours refuses "
        "(auto), if it is found.",
        default="auto",
    )
    allow_custom_ops: bool = option(
        "Keep operators of unknown domains as TFLite custom operators. The result is not run, so it stays unproven.",
        default=False,
    )
    onnx2tf: Path | None = option(
        "The onnx2tf command of a separate environment; the one on PATH unless given.",
        default=None,
        metavar="PATH",
        exclude=True,  # of the artefact's provenance: the same bytes wherever it lies
    )
    precision: Precision | None = option(
        "Precision of weights and arithmetic; the model's own by default. fp16, int8-weights and int4-weights store "
        "weights that way and compute in float32. int8-dynamic multiplies int8 weights in int8. int8 and int16x8 "
        "quantize with --calib, or take a model that is already quantized that way.",
        default=None,
    )
    dynamic_quantization: _DynamicQuantization = None
    io: Io = option(
        "Float inputs and outputs of a quantized model: unchanged, or as the 8-bit integers that the model makes of "
        "them, with their scales in the file.",
        default="float",
    )
    labels: Labels = option(
        "File with one label per line, packed into the model with TFLite metadata for apps. Write OUTPUT=FILE if "
        "several outputs have its length.",
        default={},
        metavar="[OUTPUT=]FILE",
    )
    fit: Accelerators = option(
        "Use only what this accelerator takes whole: gpu is LiteRT's GPU runtime. Sizes must be fixed. What has no "
        "such form is refused by name.",
        default=(),
        metavar="gpu",
    )
    normalization: Normalizations = option(
        "How apps normalize an input, (x - mean) / std, for the TFLite metadata: INPUT=MEAN/STD, each one number or "
        "one per channel. It changes no computation.",
        default={},
        metavar="INPUT=MEAN/STD",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if "gpu" in self.fit and (why := _NOT_ON_GPU.get(self.precision or "")):
            raise UsageError(
                f"--fit gpu has no {self.precision}",
                why=why,
                fix="give --precision fp32, fp16, int8-dynamic or int8",
            )
        return self


class CoremlParams(Params):
    """ONNX to Core ML."""

    shape: Shape = Field(default={})
    precision: CoremlPrecision | None = option(
        "Precision of weights and arithmetic; the model's own by default. fp16 computes in float16, except for what "
        "would overflow on the samples. mixed also keeps norms, powers and sums in float32. int8 and int16x8 quantize "
        "with --calib, or take a model that is already quantized that way.",
        default=None,
    )
    dynamic_quantization: _DynamicQuantization = None
    minimum_target: CoremlTarget = option(
        "The oldest system that must run the model (iOS17 is macOS 14). It decides which operators are available.",
        default="iOS17",
    )
    weights: CoremlWeights | None = option(
        "Weights in fewer bits: integers with a scale per channel (int8) or block (int4), palettes of 2^bits values "
        "(palette8, 6, 4, 3, 2, 1), or that many % of them, the smallest, set to 0 (sparse50, 75, 90).",
        default=None,
        metavar="WORD",
    )
    image: Images = option(
        "An input that apps give as a picture, as INPUT=scale:1/255,bias:-0.5,layout:RGB: the model takes "
        "scale * pixel + bias.",
        default={},
        metavar="INPUT=SETTINGS",
    )
    labels: Labels = option(
        "File with one label per line: the package outputs the label of the largest score, and the score of each "
        "label. Write OUTPUT=FILE if several outputs have its length.",
        default={},
        metavar="[OUTPUT=]FILE",
    )
    author: str | None = option("The author, as Xcode shows it.", default=None)
    license: str | None = option("The license, as Xcode shows it.", default=None)
    model_version: str | None = option("The model's version, as Xcode shows it.", default=None)
    description: str | None = option("The model's description, as Xcode shows it.", default=None)
    metadata: Entries = option("Your own entry in the package, as KEY=TEXT.", default={}, metavar="KEY=TEXT")
    compute_units: ComputeUnits | None = option(
        "Where the model should run, stored in the package as a hint. The app that loads it decides.",
        default=None,
    )
    state: Texts = option(
        "An input that is fed back from an output, as INPUT=OUTPUT. It becomes a Core ML state (iOS18), stored in "
        "float16 between predictions.",
        default={},
        metavar="INPUT=OUTPUT",
    )
    function: Functions = option(
        "A further model that becomes a function of the same package (iOS18), as NAME=MODEL.onnx. The main model is "
        "the function main. Equal weights are stored once.",
        default={},
        metavar="NAME=MODEL",
        exclude=True,  # of the provenance: each function's note has the digest of its model
    )


class OrtParams(Params):
    """ONNX to ONNX Runtime format."""

    precision: OrtPrecision | None = option(
        "Precision of weights and arithmetic; the model's own by default. fp16 is float16, except for what would "
        "overflow on the samples. int8 and int16x8 quantize with --calib, or take a model that is already quantized "
        "that way.",
        default=None,
    )
    level: OrtLevel = option(
        "ONNX Runtime's graph optimizations saved into the file. Optimizations for the CPU of this machine are left "
        "out at every level.",
        default="all",
    )
    fit: WebAccelerators = option(
        "Use what this accelerator computes right: webgpu is ONNX Runtime's WebGPU provider. The file has level basic, "
        "and is proven there, too, where there is a GPU. Nodes that would stay on the CPU are refused by name.",
        default=(),
        metavar="webgpu",
    )


PARAMS: Mapping[str, type[BaseModel]] = {"tflite": TfliteParams, "coreml": CoremlParams, "ort": OrtParams}
