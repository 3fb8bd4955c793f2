"""The options of validation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from onnxport.core.child_process import RUN_TIMEOUT
from onnxport.core.errors import UsageError
from onnxport.core.named_values import Numbers, Settings, Texts
from onnxport.core.option_types import MemoryLimit, Names, Params, Seconds, Seed, internal, option
from onnxport.runtimes.feeding_options import Inputs, Preprocess, Shape, check_preprocess

GENERATED = 3  # one of each kind of input (samples/generator.py)
READ = 20
STEPS = 4
# Demands on quality, which is against the source: they apply neither to fidelity nor to the search for a fault.
NO_DEMANDS: Mapping[str, object] = {"budget": {}, "metric": (), "report_tensors": None}


class ValidateParams(Params):
    """The proof that an artefact computes what its reference computes."""

    shape: Shape = Field(default={})
    inputs: Inputs = None
    part: Literal["all", "held-back"] = internal(
        "The samples to use: all of the folder, or what calibration holds back of it (samples/split.py).",
        default="all",
    )
    preprocess_is_shared: bool = internal(
        "Whether `preprocess` may apply to calibration samples only.", default=False
    )
    samples: int | None = option(
        f"Number of input sets: to generate ({GENERATED} unless given), or to read at most of your own ({READ} "
        "unless given).",
        default=None,
        metavar="N",
        ge=1,
        le=1000,
    )
    seed: Seed = 0
    map: Texts = option(
        "An input or output that has another name in the candidate, as REFERENCE=CANDIDATE.",
        default={},
        metavar="NAME=NAME",
    )
    rtol: float | None = option(
        "Allow differences up to this share of each reference value, not the derived tolerance.",
        default=None,
        metavar="X",
        ge=0,
        le=1,  # beyond, an answer of zeros would pass
        allow_inf_nan=False,
    )
    atol: float | None = option(
        "Allow differences up to this value, not the derived tolerance.",
        default=None,
        metavar="X",
        ge=0,
        allow_inf_nan=False,
    )
    accept_inconclusive: bool = option(
        "Accept outputs that no input makes vary beyond noise; the verdict is then 'unproven'.", default=False
    )
    budget: Numbers = option(
        "Limit of a metric against the float original, as NAME=VALUE or OUTPUT:NAME=VALUE. The metric defines whether "
        "it is a minimum or a maximum.",
        default={},
        metavar="NAME=VALUE",
    )
    metric: Names = option("Your own metric, as package.module:function.", default=(), metavar="MODULE:FN")
    accept_quality: bool = option(
        "Accept a lower precision whose answers are constant, not finite or below 5 dB SQNR.", default=False
    )
    preprocess: Preprocess = Field(default={})
    state: Texts = option(
        "An input that is fed back from an output, as INPUT=OUTPUT; found by name and shape unless given.",
        default={},
        metavar="INPUT=OUTPUT",
    )
    steps: int = option(
        "Consecutive runs of a model whose state is fed back.", default=STEPS, metavar="N", ge=1, le=1000
    )
    timeout: Seconds = RUN_TIMEOUT
    memory_limit: MemoryLimit = option(
        "Maximum memory for running the models, inputs and answers included, as 800MB or 2GB. [default: a quarter of "
        "the machine's, at most 4GB]",
        default=None,
    )
    reference_runtime: Settings = option(
        "How the reference is run, as NAME=VALUE: integers, level, provider, threads (ONNX Runtime), delegate, threads "
        "(LiteRT), function, units (Core ML), vulkan (GPUs). runtime names another runtime: ort-webgpu, tract, "
        "openvino, ncnn, mnn for .onnx, ort-webgpu for .ort, litert-gpu for .tflite, predict, "
        "evaluator for .mlpackage.",
        default={},
        metavar="NAME=VALUE",
    )
    candidate_runtime: Settings = option(
        "How the candidate is run, likewise: --candidate-runtime level=basic, or runtime=ort-webgpu.",
        default={},
        metavar="NAME=VALUE",
    )
    report_tensors: Path | None = option(
        "Write the tensors of the input set with the worst element in the report to FILE.npz, at most 64 MB.",
        default=None,
        metavar="FILE",
    )

    @field_validator("inputs", "report_tensors")
    @classmethod
    def _check_path(cls, path: Path | None) -> Path | None:
        if path is not None and "\0" in str(path):
            raise ValueError("give a path without a NUL character")
        return path

    @field_validator("report_tensors")
    @classmethod
    def _check_suffix(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() != ".npz":
            raise ValueError("give a file that ends in .npz")
        return path

    @model_validator(mode="after")
    def _writes_outside_the_inputs(self) -> Self:
        if self.report_tensors is None or self.inputs is None:
            return self
        if self.inputs.resolve() in self.report_tensors.resolve().parents:
            raise UsageError(
                f"--report-tensors {self.report_tensors} lies in the folder of inputs",
                fix="give a path in another folder",
            )
        return self

    @model_validator(mode="after")
    def _has_inputs_to_preprocess(self) -> Self:
        check_preprocess(self.preprocess, self.inputs)
        return self


class SamplesParams(Params):
    """Which inputs to generate, as validation does."""

    shape: Shape = Field(default={})
    samples: int | None = option(
        f"Number of input sets at batch 1 ({GENERATED} unless given).",
        default=None,
        metavar="N",
        ge=1,
        le=1000,
    )
    seed: Seed = 0
    timeout: Seconds = RUN_TIMEOUT
    memory_limit: MemoryLimit = None
