"""The types of the keyword options of `api.py`, for type checkers and editors; nothing imports this at run time.

The params models define what an option means and refuse wrong values. They take more than their own types: a text
where a tuple or a mapping is meant, as on the command line. These classes say what callers may pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from onnxport.converters.app_metadata import ImageInput
from onnxport.converters.params import (
    Accelerator,
    AnyPrecision,
    ComputeUnits,
    CoremlTarget,
    CoremlWeights,
    DynamicQuantization,
    Io,
    Layout,
    Route,
)
from onnxport.formats.artifact import TensorSpec
from onnxport.quantize import params as quantize
from onnxport.runtimes.options import OrtLevel

StrPath = str | os.PathLike[str]
_Names = str | Sequence[str]
_Shapes = _Names | Mapping[str, str | Sequence[int | str | None]]
_Texts = _Names | Mapping[str, str]
_Numbers = _Names | Mapping[str, float]
_Settings = _Names | Mapping[str, str | float | Sequence[float]]
_Entries = _Names | Mapping[str, str | float | Sequence[str | float]]
_Files = _Names | Mapping[str, StrPath]
_Means = _Names | Mapping[str, str | Sequence[float | Sequence[float]]]
_Images = _Names | Mapping[str, str | ImageInput | Mapping[str, str | float | Sequence[float]]]
_Whole = int | str | Sequence[int]


class _ProofOptions(TypedDict, total=False):
    """The fields of ValidateParams, but for `inputs`."""

    shape: _Shapes
    samples: int | None
    seed: int
    map: _Texts
    rtol: float | None
    atol: float | None
    accept_inconclusive: bool
    budget: _Numbers
    metric: _Names
    accept_quality: bool
    preprocess: _Settings
    state: _Texts
    steps: int
    timeout: float
    memory_limit: str | None
    reference_runtime: _Settings
    candidate_runtime: _Settings
    report_tensors: StrPath | None


class ValidateOptions(_ProofOptions, total=False):
    """The options of `validate_model`."""

    inputs: StrPath | None


class DebugOptions(ValidateOptions, total=False):
    """The options of `debug_model`."""

    layers: bool


class SamplesOptions(TypedDict, total=False):
    """The options of `write_samples`."""

    shape: _Shapes
    samples: int | None
    seed: int
    timeout: float
    memory_limit: str | None


class _CalibrationOptions(TypedDict, total=False):
    """The fields of QuantizeParams that a conversion takes, too."""

    calib: StrPath | None
    calib_samples: int
    strict: bool
    method: quantize.Method
    per_tensor: bool
    activations: quantize.Activations
    bias_correction: bool
    reduce_range: bool
    for_cpu: quantize.ForCpu
    exclude: _Names
    jobs: int
    scheduler: str | None
    cache: bool


class ConvertOptions(ValidateOptions, _CalibrationOptions, total=False):
    """The options of `convert_model`, of all targets."""

    layout: Layout
    route: Route
    allow_custom_ops: bool
    onnx2tf: StrPath | None
    precision: AnyPrecision | Sequence[AnyPrecision] | None
    dynamic_quantization: DynamicQuantization | None
    io: Io
    labels: _Files | StrPath
    fit: Accelerator | Sequence[Accelerator]
    normalization: _Means
    minimum_target: CoremlTarget
    weights: CoremlWeights | None
    image: _Images
    author: str | None
    license: str | None
    model_version: str | None
    description: str | None
    metadata: _Entries
    compute_units: ComputeUnits | None
    function: _Files
    level: OrtLevel


class QuantizeOptions(ValidateOptions, _CalibrationOptions, total=False):
    """The options of `quantize_model`."""

    block: int | None
    weights_method: quantize.WeightsMethod
    weights_format: quantize.WeightsFormat
    io: quantize.Io


class ExportOptions(ValidateOptions, total=False):
    """The options of `export_model`."""

    weights: StrPath | None
    arg: _Entries
    input: _Texts | Mapping[str, TensorSpec]
    dynamic: _Names | Mapping[str, str | Sequence[str | None]]
    output_names: _Names
    opset: int | Literal["latest"] | None
    exporter: Literal["dynamo", "torchscript"]
    signature: str | None
    float64: bool
    zipmap: bool
    trust: bool
    paddle2onnx: StrPath | None


class OptimizeOptions(ValidateOptions, total=False):
    """The options of `optimize_model`."""

    opset: int | Literal["latest"] | None
    simplify: bool
    level: Literal["basic", "extended", "ort-all"]
    passes: StrPath | None
    skip: _Names
    prune_unused: bool
    drop_shapes: bool
    fp16: bool
    io: Literal["float", "fp16"]


class ExtractOptions(_ProofOptions, total=False):
    """The options of `extract_model`."""

    samples_from: StrPath | None


class DeploymentOptions(TypedDict, total=False):
    """The options of `inspect_deployment`."""

    error_on_fallback: bool
    shape: _Shapes
    timeout: float


class _FeedingOptions(TypedDict, total=False):
    inputs: StrPath | None
    preprocess: _Settings
    shape: _Shapes
    seed: int
    runs: int
    warmup: int
    timeout: float


class ProfileOptions(_FeedingOptions, total=False):
    """The options of `profile_model`."""

    source: StrPath | None
    threads: int
    provider: str | None
    level: OrtLevel


class BenchOptions(_FeedingOptions, total=False):
    """The options of `bench_models`."""

    threads: _Whole
    runtimes: _Names
    providers: _Names
    levels: _Names
    batch: _Whole
    reference: StrPath | None
    device: str | None
    device_binary: _Names
    device_arguments: str
    against: StrPath | None
    max_slowdown: float | None
    max_latency: str | None
    max_load: str | None
    max_memory: str | None
    max_size: str | None
    force: bool
    patience: float | None
