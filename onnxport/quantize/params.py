"""The options of `onnxport quantize`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, model_validator
from pydantic.fields import FieldInfo

from onnxport.core.errors import UsageError
from onnxport.core.option_types import MemoryLimit, Names, Params, Seed, internal, option
from onnxport.formats.input_paths import InputPath
from onnxport.runtimes.feeding_options import Preprocess

Precision = Literal["int8", "int16x8", "dynamic", "fp16", "bf16", "int8-weights", "int4-weights"]
Method = Literal["auto", "minmax", "percentile", "mse", "entropy"]
Activations = Literal["u8", "s8", "s16"]
WeightsMethod = Literal["auto", "rtn", "hqq", "gptq"]
WeightsFormat = Literal["dequantize", "nbits"]
Io = Literal["float", "fp16"]
ForCpu = Literal["any", "vnni", "arm"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Precisions whose scales come from the user's samples.
CALIBRATED: frozenset[Precision] = frozenset(("int8", "int16x8"))
# Block sizes that MatMulNBits has kernels for.
_KERNELS = (16, 32, 64, 128, 256)
# Options that apply to some precisions only.
_WEIGHTS: frozenset[Precision] = frozenset(("int8-weights", "int4-weights"))
_CALIBRATING = CALIBRATED | _WEIGHTS
BELONGS: Mapping[str, frozenset[Precision]] = {
    **dict.fromkeys(("calib", "calib_samples", "strict"), _CALIBRATING | {"fp16"}),
    **dict.fromkeys(("jobs", "cache", "scheduler"), _CALIBRATING),
    **dict.fromkeys(("method", "per_tensor", "bias_correction"), CALIBRATED),
    **dict.fromkeys(("block", "weights_method", "weights_format"), _WEIGHTS),
    "activations": frozenset(("int8",)),
    "io": frozenset(("fp16",)),
    "reduce_range": frozenset(("dynamic", "int8")),
    "for_cpu": frozenset(("int8",)),
}
# Options about calibration samples.
_OF_CALIB = ("calib_samples", "strict", "jobs", "scheduler")
# The default limit of calibration samples.
CALIBRATION_SAMPLES = 300


def check_address(address: str) -> str:
    """Return the address of a Dask scheduler; UsageError for a text of another form."""
    if not re.fullmatch(r"(tcp|tls|ws|wss|ucx)://.+", address):
        raise UsageError(f"{address!r} is not the address of a Dask scheduler", fix="write tcp://HOST:8786")
    return address


class QuantizeParams(Params):
    """ONNX to ONNX of lower precision."""

    precision: Precision = internal("The precision to store and compute in.")
    calib: InputPath | None = option(
        "Folder with calibration samples, or one file of many: images, .npz, .npy, .safetensors or .wav files, or ONNX "
        "test_data_set_* folders.",
        default=None,
        metavar="DIR",
        exclude=True,  # of the provenance: the same bytes wherever the samples lie
    )
    calib_samples: int = option(
        "Maximum number of calibration samples; if there are more, this many are drawn with --seed.",
        default=CALIBRATION_SAMPLES,
        metavar="N",
        ge=1,
    )
    seed: Seed = option("Seed of the random draws.", default=0)
    strict: bool = option(
        "Fail if the samples look wrong, instead of printing a note.", default=False, exclude=True
    )
    preprocess: Preprocess = option(
        "How images become arrays, as NAME=VALUE: resize, interpolation, crop, layout, color, scale, mean, std; of "
        "audio: rate. A preprocess.yaml in the folder can say the same.",
        default={},
    )
    method: Method = option(
        "How the range of an activation follows from its values. auto tries what is known to help and keeps what does, "
        "on held-back samples.",
        default="mse",
    )
    per_tensor: bool = option("One scale for a whole weight, not one per channel.", default=False)
    activations: Activations = option(
        "Integer type of activations: 8 bits without or with a sign, or 16.", default="u8"
    )
    bias_correction: bool = option(
        "Correct biases for the average shift that the rounding of weights causes.", default=True
    )
    block: int | None = option(
        "Weight-only: how many neighbouring weights share a scale. Unless given: 32 for 4 bits, the whole output "
        "channel for 8 bits.",
        default=None,
        metavar="N",
        ge=2,
    )
    weights_method: WeightsMethod = option(
        "Weight-only: round to nearest (rtn), with robust scales (hqq), or so that the results of products stay close "
        "on the --calib samples (gptq). auto is gptq with samples and rtn without.",
        default="auto",
    )
    weights_format: WeightsFormat = option(
        "Weight-only: ONNX's DequantizeLinear in front of the products, or ONNX Runtime's own MatMulNBits and "
        "GatherBlockQuantized.",
        default="dequantize",
    )
    reduce_range: bool = option(
        "Use 7-bit weights, for x86 CPUs without VNNI, where sums of 8-bit products saturate.", default=False
    )
    for_cpu: ForCpu = option(
        "The CPUs that ONNX Runtime runs the file on. With any, weights whose products saturate on x86 without VNNI "
        "get steps that do not. vnni and arm use all 8 bits.",
        default="any",
    )
    exclude: Names = option(
        "A node that stays in float, by name or by operator type.", default=(), metavar="NAME|OP"
    )
    io: Io = option(
        "Float inputs and outputs of a float16 model: unchanged, or float16 as well.", default="float"
    )
    jobs: int = option(
        "Calibration processes, each on one core.", default=1, metavar="N", ge=1, le=256, exclude=True
    )
    scheduler: Annotated[str, AfterValidator(check_address)] | None = option(
        "A Dask scheduler, as tcp://HOST:8786, whose workers calibrate instead. They need onnxport, but no file of "
        "yours. Needs pip install 'onnxport[distributed]'.",
        default=None,
        metavar="ADDRESS",
        exclude=True,
    )
    memory_limit: MemoryLimit = option(
        "Maximum memory for a step, as 800MB or 2GB. To stay within it, calibration uses fewer processes, then runs "
        "each sample several times with a part of the tensors. The proof refuses larger inputs. [default: none for "
        "calibration; for the proof a quarter of the machine's memory, at most 4GB]",
        default=None,
        exclude=True,
    )
    cache: bool = option(
        "Keep calibrations in $ONNXPORT_CACHE or the user's cache folder, to reuse them and to continue after a "
        "Ctrl-C.",
        default=True,
        exclude=True,
    )

    @property
    def rounding(self) -> Literal["rtn", "hqq", "gptq"]:
        """How weight-only quantization rounds."""
        if self.weights_method == "auto":
            return "rtn" if self.calib is None else "gptq"
        return self.weights_method

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.rounding == "gptq" and self.calib is None:
            raise UsageError(
                "--weights-method gptq needs samples of the model's inputs",
                fix="give a folder of them: --calib DIR; rtn and hqq need none",
            )
        if self.weights_format == "nbits" and self.block not in (None, *_KERNELS):
            raise UsageError(
                f"MatMulNBits has no blocks of {self.block}",
                fix=f"give --block {', '.join(map(str, _KERNELS[:-1]))} or {_KERNELS[-1]}",
            )
        for name in (each for each in BELONGS if each in self.model_fields_set):
            spelled = f"--{'no-' if getattr(self, name) is False else ''}{name.replace('_', '-')}"
            if self.precision not in BELONGS[name]:
                others = " and ".join(f"--{each}" for each in PRECISIONS if each in BELONGS[name])
                raise UsageError(
                    f"{spelled} has no effect with --{self.precision}",
                    fix=f"leave it out: it is for {others}",
                )
            if name in _OF_CALIB and self.calib is None and self.precision not in CALIBRATED:
                raise UsageError(
                    f"{spelled} is about calibration samples", fix="give their folder: --calib DIR"
                )
        if self.scheduler is not None and self.jobs > 1:
            raise UsageError(
                "--jobs and --scheduler exclude each other", fix="a cluster has its own number of workers"
            )
        if self.precision in CALIBRATED and self.calib is None:
            raise UsageError(
                f"--{self.precision} needs samples of the model's inputs",
                why="they give the range of every activation",
                fix="give a folder of them: --calib DIR; without samples, --dynamic finds ranges at run time",
            )
        return self


def calibrated_fields() -> dict[str, FieldInfo]:
    """Return the fields that apply to a calibrated precision, which a conversion takes too."""
    others = ("precision", "io")  # a target has its own
    return {
        name: field
        for name, field in QuantizeParams.model_fields.items()
        if name not in others and CALIBRATED & BELONGS.get(name, CALIBRATED)
    }
