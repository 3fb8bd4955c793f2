"""What a user may ask of quantization: the one source of its CLI options, Python keywords and YAML keys.

Light on purpose, since every `--help` imports it: a field's description is its help text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from onnxport.core.errors import UsageError
from onnxport.core.memory import Size
from onnxport.validate.params import Preprocess

Precision = Literal["int8", "int16x8", "dynamic", "fp16", "bf16", "int8-weights", "int4-weights"]
Method = Literal["auto", "minmax", "percentile", "mse", "entropy"]
Activations = Literal["u8", "s8", "s16"]
WeightsMethod = Literal["auto", "rtn", "hqq", "gptq"]
WeightsFormat = Literal["dequantize", "nbits"]
Io = Literal["float", "fp16"]
ForCpu = Literal["any", "vnni", "arm"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Those whose grids come from samples of the user's.
CALIBRATED: frozenset[Precision] = frozenset(("int8", "int16x8"))
# The sizes of blocks that MatMulNBits has kernels for.
_KERNELS = (16, 32, 64, 128, 256)
# Options to the precisions that they say something about; what is not listed goes with all.
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
# Of these, those that say how samples are read.
_OF_CALIB = ("calib_samples", "strict", "jobs", "scheduler")
# The most sets of inputs that are read unless the user says otherwise.
CALIBRATION_SAMPLES = 300

Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


def checked_address(address: str) -> str:
    if not re.fullmatch(r"(tcp|tls|ws|wss|ucx)://.+", address):
        raise UsageError(f"{address!r} is no address of a Dask scheduler", fix="write tcp://HOST:8786")
    return address


class QuantizeParams(BaseModel):
    """ONNX to ONNX of lower precision."""

    # Deferred: a --help imports this and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    precision: Precision = Field(
        description="What to store and compute in.", json_schema_extra={"option": False}
    )
    calib: Path | None = Field(
        default=None,
        exclude=True,  # of the provenance: the same bytes wherever the samples lie
        description="Folder with samples to calibrate on, or one file of many: images, .npz, .npy or .safetensors "
        "files, or ONNX test_data_set_* folders.",
        json_schema_extra={"metavar": "DIR"},
    )
    calib_samples: int = Field(
        default=CALIBRATION_SAMPLES,
        ge=1,
        description="The most samples to calibrate on; of more, as many are drawn with --seed.",
        json_schema_extra={"metavar": "N"},
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of what is drawn.", json_schema_extra={"metavar": "S"}
    )
    strict: bool = Field(
        default=False,
        exclude=True,
        description="Fail when something looks wrong with the samples, which is a note otherwise.",
    )
    preprocess: Preprocess = Field(
        default={},
        description="How images become arrays, as NAME=VALUE: resize, interpolation, crop, layout, color, "
        "scale, mean, std; a preprocess.yaml in the folder says the same.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    method: Method = Field(
        default="mse",
        description="How the range of an activation follows from its values; auto tries what is known to help and "
        "keeps what does, on samples held back.",
    )
    per_tensor: bool = Field(default=False, description="One scale for a whole weight, not one per channel.")
    activations: Activations = Field(
        default="u8", description="Integers that activations become: 8 bits without or with a sign, or 16."
    )
    bias_correction: bool = Field(
        default=True, description="Take what the weights' rounding shifts on average out of the biases."
    )
    block: int | None = Field(
        default=None,
        ge=2,
        description="Weight-only: how many neighbouring weights share a scale; 32 for 4 bits unless given, for 8 bits "
        "all of an output channel.",
        json_schema_extra={"metavar": "N"},
    )
    weights_method: WeightsMethod = Field(
        default="auto",
        description="Weight-only: round to nearest (rtn), with robust scales (hqq), or so that the products' results "
        "stay near on the samples of --calib (gptq); auto is gptq with samples and rtn without.",
    )
    weights_format: WeightsFormat = Field(
        default="dequantize",
        description="Weight-only: ONNX's DequantizeLinear in front of the products, or ONNX Runtime's own MatMulNBits "
        "and GatherBlockQuantized.",
    )
    reduce_range: bool = Field(
        default=False,
        description="Weights of 7 bits, for x86 CPUs without VNNI, where sums of products of 8 bits saturate.",
    )
    for_cpu: ForCpu = Field(
        default="any",
        description="CPUs that ONNX Runtime is to run the file on: with any, weights of products that saturate on x86 "
        "without VNNI get steps that do not; vnni and arm take all 8 bits.",
    )
    exclude: Names = Field(
        default=(),
        description="A node, by name or by operator type, that stays in float.",
        json_schema_extra={"metavar": "NAME|OP"},
    )
    io: Io = Field(
        default="float",
        description="Float inputs and outputs of a float16 model: as they are, or float16 as well.",
    )
    jobs: int = Field(
        default=1,
        ge=1,
        le=256,
        exclude=True,
        description="Processes that calibrate, each on one core.",
        json_schema_extra={"metavar": "N"},
    )
    scheduler: Annotated[str, AfterValidator(checked_address)] | None = Field(
        default=None,
        exclude=True,
        description="A Dask scheduler, as tcp://HOST:8786, whose workers calibrate instead; they need onnxport, and no "
        "file of yours. Needs pip install 'onnxport[distributed]'.",
        json_schema_extra={"metavar": "ADDRESS"},
    )
    memory_limit: Size | None = Field(
        default=None,
        exclude=True,
        description="Memory that a step may take, as 800MB or 2GB. Calibration keeps it with fewer processes, then by "
        "running each sample several times with a part of the tensors; the proof refuses larger inputs. "
        "[default: none for calibration; for the proof a quarter of the machine's memory, at most 4GB]",
        json_schema_extra={"metavar": "SIZE"},
    )
    cache: bool = Field(
        default=True,
        exclude=True,
        description="Keep calibrations in $ONNXPORT_CACHE or the user's cache folder, to find them again and to go on "
        "after a Ctrl-C.",
    )

    @property
    def rounding(self) -> Literal["rtn", "hqq", "gptq"]:
        """How weights are rounded where only weights are."""
        if self.weights_method == "auto":
            return "rtn" if self.calib is None else "gptq"
        return self.weights_method

    @model_validator(mode="after")
    def _has_weight_options_that_go_together(self) -> Self:
        if self.rounding == "gptq" and self.calib is None:
            raise UsageError(
                "--weights-method gptq needs samples of what the model will meet",
                fix="give a folder of them: --calib DIR; rtn and hqq need none",
            )
        if self.weights_format == "nbits" and self.block not in (None, *_KERNELS):
            raise UsageError(
                f"MatMulNBits has no blocks of {self.block}",
                fix=f"give --block {', '.join(map(str, _KERNELS[:-1]))} or {_KERNELS[-1]}",
            )
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        for name in (each for each in BELONGS if each in self.model_fields_set):
            option = _option(name, getattr(self, name))
            if self.precision not in BELONGS[name]:
                others = " and ".join(f"--{each}" for each in PRECISIONS if each in BELONGS[name])
                raise UsageError(
                    f"{option} says nothing to --{self.precision}", fix=f"leave it out: it is for {others}"
                )
            if name in _OF_CALIB and self.calib is None and self.precision not in CALIBRATED:
                raise UsageError(
                    f"{option} is about samples to calibrate on", fix="give their folder: --calib DIR"
                )
        return self

    @model_validator(mode="after")
    def _has_one_kind_of_workers(self) -> Self:
        if self.scheduler is not None and self.jobs > 1:
            raise UsageError(
                "--jobs and --scheduler exclude each other", fix="a cluster has its own number of workers"
            )
        return self

    @model_validator(mode="after")
    def _has_samples(self) -> Self:
        if self.precision in CALIBRATED and self.calib is None:
            raise UsageError(
                f"--{self.precision} needs samples of what the model will meet",
                why="they tell the range of every activation",
                fix="give a folder of them: --calib DIR; without any, --dynamic finds ranges at run time",
            )
        return self


def calibrated_fields() -> dict[str, FieldInfo]:
    """The fields that say something to a precision whose grids come from samples: what a conversion takes too."""
    others = ("precision", "io")  # which it is; and a target's own
    return {
        name: field
        for name, field in QuantizeParams.model_fields.items()
        if name not in others and CALIBRATED & BELONGS.get(name, CALIBRATED)
    }


def _option(name: str, value: object) -> str:
    """How the option of a field is spelled."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
