"""Jobs of the runner: a source, its steps, the output and the proof."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from onnxport.converters.params import OrtParams
from onnxport.core.errors import InputError, UsageError
from onnxport.core.urls import shown
from onnxport.exporters.params import BELONGS, ExportParams
from onnxport.exporters.sources import CONTAINERS, KINDS, Source
from onnxport.formats.artifact import FOLDERS, SUFFIXES, Artifact, path_of, writing
from onnxport.formats.remote import beside
from onnxport.optimizers.params import ExtractParams, OptimizeParams
from onnxport.pipelines.params import check_known, params_of
from onnxport.pipelines.registry import EXTRACT, OPTIMIZE, QUANTIZE, target
from onnxport.pipelines.stages import Stage
from onnxport.quantize.params import CALIBRATED, PRECISIONS, QuantizeParams, calibrated_fields
from onnxport.validate.params import ValidateParams

StrPath = str | os.PathLike[str]
# Options of the proof that make no sense without one.
_NEED_PROOF = ("budget", "metric", "report_tensors")


@dataclass(frozen=True)
class Step:
    """A stage with its params; `made` is its product, if another run made and proved it, never of the last step."""

    stage: Stage
    params: BaseModel
    made: Artifact | None = None


class _Delivery:
    """An output, and what happens to it."""

    output: Path
    keep_rejected: bool

    def destination(self, *, passed: bool) -> Path | None:
        """Return where the product goes; None if it is dropped."""
        if passed:
            return self.output
        return self.output.with_suffix(f".rejected{self.output.suffix}") if self.keep_rejected else None


@dataclass(frozen=True)
class Job(_Delivery):
    """One artefact to make.

    Attributes:
        validation: the options of the proof; None to deliver it unproven.
        keep_rejected: whether to keep a candidate that fails, as <stem>.rejected<suffix>.
        latency: whether to time a lower precision.
        operators: a file with definitions of the model's own operators (operator_definitions.py).
    """

    source: Artifact
    steps: Sequence[Step]
    output: Path
    validation: ValidateParams | None
    keep_rejected: bool = False
    latency: bool = True
    operators: Path | None = None

    def __post_init__(self) -> None:
        first = self.steps[0].stage
        if self.source.format != first.takes:
            what = f"{self.source.path} is in {self.source.format} format"
            made = "; onnxport export makes one of a .tflite file" if self.source.format == "tflite" else ""
            raise InputError(what, fix=f"give a .{first.takes} file{made}")
        suffix = SUFFIXES[self.target.gives]
        with writing(self.output):
            if self.output.suffix.lower() != suffix:
                what = f"the output {self.output} does not end in {suffix}"
                raise UsageError(what, fix=f"give a name that ends in {suffix}, or a folder that exists")
            self._check_replaceable()
            is_same = self.output.exists() and self.output.samefile(self.source.path)
            if is_same or shown(str(self.output)) == shown(str(self.source.path)):
                raise UsageError(f"the output {self.output} is the input", fix="give another path")
            if self.output.resolve() in self.source.path.resolve().parents:
                what = f"the output {self.output} contains the input and would replace it"
                raise UsageError(what, fix="give another path")

    def _check_replaceable(self) -> None:
        """Refuse to replace something that is no artefact of the output's format (UsageError)."""
        mark = FOLDERS.get(self.target.gives)
        if mark is None and self.output.is_dir():
            raise UsageError(f"the output {self.output} is a directory", fix="give -o a file name")
        if mark is None or not self.output.exists():
            return
        if not self.output.is_dir() or (any(self.output.iterdir()) and not (self.output / mark).is_file()):
            kind = "a directory" if self.output.is_dir() else "a file"
            what = f"the output {self.output} is {kind}, but not a Core ML package"
            raise UsageError(what, fix="remove it, or give -o another name")

    def check_spares(self, source: Artifact) -> None:
        """Refuse an output that would overwrite weights of the source with all its files (UsageError)."""
        if self.target.gives != "onnx":
            return
        beside = self.output.with_name(f"{self.output.name}.data")
        for place in (self.output, beside):
            with writing(self.output):
                taken = place.exists() and any(place.samefile(file) for file in source.files)
            if taken:
                what = f"the output {self.output} would overwrite {place}, which has weights of the input"
                raise UsageError(what, fix="give -o another name")

    @property
    def target(self) -> Stage:
        """The last stage, which makes the artefact."""
        return self.steps[-1].stage

    @property
    def is_folder(self) -> bool:
        """Return whether the artefact is a folder."""
        return self.target.gives in FOLDERS

    @property
    def functions(self) -> Mapping[str, Path]:
        """The further models of a package with several functions."""
        further: Mapping[str, Path] = getattr(self.steps[-1].params, "function", {})
        return further

    @property
    def lowers(self) -> bool:
        """Return whether a step lowers the precision on purpose."""
        return any(step.stage.lowers for step in self.steps)

    @property
    def is_timed(self) -> bool:
        """Return whether to time its product: where it may compute in integers what the source computes in floats."""
        precision = getattr(self.steps[-1].params, "precision", None)
        return self.latency and (self.lowers or precision == "int8-dynamic")

    @property
    def rewrites(self) -> bool:
        """Return whether a step runs passes, which can be checked one by one if the result is wrong."""
        return any(step.stage.rewrites for step in self.steps)


@dataclass(frozen=True)
class Extraction(Job):
    """A part of a model to extract. Its options of the proof are about the whole model."""


@dataclass(frozen=True)
class Export(_Delivery):
    """One ONNX file to make from a framework's model, see Job; `consults` records the model's code in the report."""

    source: Source
    params: ExportParams
    output: Path
    validation: ValidateParams | None
    keep_rejected: bool = False
    consults: bool = False
    is_folder: ClassVar[bool] = False


def conversion(
    model: StrPath, to: str, output: StrPath | None, options: Mapping[str, Any], **wishes: Any
) -> Job:
    """Return the job of `onnxport convert` and `convert_model`; its default output is beside the model.

    With `calib` and a calibrated precision it has two steps, and is judged as a quantization is.

    Args:
        wishes: validate, keep_rejected, latency, operators; see `_job`.

    Raises:
        UsageError: an unknown target or option, or a refused value.
        InputError: the model file is missing, unreadable or of another format.
    """
    stage = target(to)
    purpose = f"converting to {to}"
    check_known(options, stage.params, ValidateParams, purpose=purpose, further=calibrated_fields())
    steps = steps_to(stage, options, purpose)
    return _job(model, steps, output, options, purpose, SUFFIXES[stage.gives], **wishes)


def quantization(
    model: StrPath, precision: str | None, output: StrPath | None, options: Mapping[str, Any], **wishes: Any
) -> Job:
    """Return the job of `onnxport quantize` and `quantize_model`; its default output is <stem>_<precision>.onnx.

    It is judged on `inputs`, or on the samples that calibration holds back. Args and Raises: see `conversion`.
    """
    if precision is None:
        flags = ", ".join(f"--{each}" for each in PRECISIONS)
        raise UsageError("no precision is given", fix=f"give one of {flags}")
    purpose = "quantization"
    check_known(options, QuantizeParams, ValidateParams, purpose=purpose)
    asked = fields_of(QuantizeParams, options) | {"precision": precision}
    steps = (Step(QUANTIZE, params_of(QuantizeParams, asked, purpose=purpose)),)
    return _job(model, steps, output, options, purpose, f"_{precision.replace('-', '_')}.onnx", **wishes)


def optimization(model: StrPath, output: StrPath | None, options: Mapping[str, Any], **wishes: Any) -> Job:
    """Return the job of `onnxport optimize` and `optimize_model`; its default output is <stem>_optimized.onnx.

    Args and Raises: see `conversion`.
    """
    purpose = "optimization"
    check_known(options, OptimizeParams, ValidateParams, purpose=purpose)
    params = params_of(OptimizeParams, fields_of(OptimizeParams, options), purpose=purpose)
    return _job(model, (Step(OPTIMIZE, params),), output, options, purpose, "_optimized.onnx", **wishes)


def extraction(
    model: StrPath, output: StrPath | None, options: Mapping[str, Any], **wishes: Any
) -> Extraction:
    """Return the job of `onnxport extract` and `extract_model`; its default output is <stem>_part.onnx.

    Args:
        options: with `inputs` and `outputs` of the part; the samples for the proof are `samples_from`.

    Other Args and Raises: see `conversion`.
    """
    purpose = "extraction"
    check_known(options, ExtractParams, ValidateParams, purpose=purpose)
    params = params_of(ExtractParams, fields_of(ExtractParams, options), purpose=purpose)
    proof = {name: value for name, value in options.items() if name not in ExtractParams.model_fields}
    if params.samples_from is not None:
        proof["inputs"] = params.samples_from
    elif proof.get("preprocess"):
        what = "--preprocess is for images in --samples-from"
        raise UsageError(what, fix="give the folder: --samples-from DIR")
    made = _job(model, (Step(EXTRACT, params),), output, proof, purpose, "_part.onnx", **wishes)
    return Extraction(**vars(made))


def _job(
    model: StrPath,
    steps: Sequence[Step],
    output: StrPath | None,
    options: Mapping[str, Any],
    purpose: str,
    ending: str,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    operators: StrPath | None = None,
) -> Job:
    """Return the job that runs `steps` on a model file; <stem><ending> beside it is the default output."""
    validation = _validation(proof_options(steps, options), options, purpose, validate=validate)
    source = Artifact.open(model)
    chosen = _output(output, beside(source.path, f"{source.path.stem}{ending}"))
    own = None if operators is None else path_of(operators, "the operators", fix="give the path of a file")
    return Job(source, steps, chosen, validation, keep_rejected, latency, own)


def exportation(
    source: StrPath,
    output: StrPath | None,
    options: Mapping[str, Any],
    *,
    validate: bool = True,
    keep_rejected: bool = False,
) -> Export:
    """Return the job of `onnxport export` and `export_model`.

    Raises:
        UsageError: an unknown option, a refused value, or an option that does not apply to this kind of model.
        InputError: the source is missing, unreadable or of an unknown kind.
    """
    purpose = "export"
    check_known(options, ExportParams, ValidateParams, purpose=purpose)
    params = params_of(ExportParams, fields_of(ExportParams, options), purpose=purpose)
    validation = _validation(fields_of(ValidateParams, options), options, purpose, validate=validate)
    found = Source.of(source, params.weights)
    check_export(found, params)
    # Beside a file or folder; for a factory <function>.onnx in the current folder.
    function = found.name.partition(":")[2].rpartition(".")[2]
    usual = Path(f"{function}.onnx") if found.is_factory else beside(found.path, f"{found.path.stem}.onnx")
    chosen = _output(output, usual)
    if chosen.suffix.lower() != ".onnx":
        raise UsageError(f"the output {chosen} does not end in .onnx", fix="give a name that ends in .onnx")
    return Export(found, params, chosen, validation, keep_rejected)


def check_export(source: Source, params: ExportParams) -> None:
    """Refuse options that do not apply to the source, as far as its kind is known before it is loaded (UsageError)."""
    if params.arg and not source.is_factory:
        what = f"--arg is for a factory, and {source.name} is {KINDS[source.kind]}"
        raise UsageError(what, fix="leave it out")
    if source.kind not in CONTAINERS:
        check_belongs(params, source.kind)


def check_belongs(params: ExportParams, kind: str) -> None:
    """Refuse options that do not apply to a kind of model (UsageError)."""
    for name in params.model_fields_set & set(BELONGS):
        if kind not in BELONGS[name]:
            fix = f"leave it out: it is for {' and '.join(sorted(BELONGS[name]))}"
            raise UsageError(f"{_option(name)} has no effect on {KINDS[kind]}", fix=fix)


def _output(given: StrPath | None, usual: Path) -> Path:
    """Return the path to write; in a folder the file gets its usual name."""
    if given is None:
        return usual
    path = path_of(given, "the output", fix="give the path of the file to write", writes=True)
    # Unlike Path.is_dir, this is no error where a folder may not be entered.
    is_folder = os.path.isdir(path) and path.suffix.lower() not in SUFFIXES.values()
    return path / usual.name if is_folder else path


def _validation(
    values: Mapping[str, Any], options: Mapping[str, Any], purpose: str, *, validate: bool
) -> ValidateParams | None:
    """Return how a result is judged, or None; UsageError for a refused value or an option that needs the proof."""
    params = params_of(ValidateParams, values, purpose=purpose)
    if validate:
        return params
    for name in _NEED_PROOF:
        if options.get(name):
            what = f"{_option(name)} needs the proof, which --no-validate leaves out"
            raise UsageError(what, fix="give one of them")
    return None


def steps_to(stage: Stage, options: Mapping[str, Any], purpose: str) -> tuple[Step, ...]:
    """Return the steps of a target: its own, behind a quantization if `options` have calibration samples.

    Raises:
        UsageError: a refused value, or an option that has no effect beside the others.
    """
    params = params_of(stage.params, fields_of(stage.params, options), purpose=purpose)
    quantizing = _quantize_params(params, options, purpose)
    return (*([Step(QUANTIZE, quantizing)] if quantizing else ()), Step(stage, params))


def _quantize_params(params: BaseModel, options: Mapping[str, Any], purpose: str) -> QuantizeParams | None:
    """Return how a conversion quantizes a float model, or None; UsageError for options that contradict each other."""
    # A shared name is the target's: TFLite's --io is not that of quantize --fp16.
    names = [name for name in calibrated_fields() if name not in type(params).model_fields]
    given = {name: options[name] for name in names if options.get(name) is not None}
    asked = [name for name in given if name not in ValidateParams.model_fields]
    precision = getattr(params, "precision", None)
    if not asked:
        return None
    if "calib" not in asked:
        raise UsageError(
            f"{_option(asked[0])} is about quantization, which needs samples of the model's inputs",
            fix="give a folder of them, --calib DIR, with --precision int8 or int16x8",
        )
    if precision not in CALIBRATED:
        raise UsageError(
            "--calib is for --precision int8 and int16x8"
            + (f"; --precision {precision} needs no samples" if precision else ""),
            fix="give --precision int8, or leave --calib out",
        )
    if getattr(params, "function", {}):
        raise UsageError(
            "--calib quantizes one model, but --function names further ones",
            fix="quantize each model with onnxport quantize, then convert the results",
        )
    # Only ONNX Runtime saturates, and only the target's product is delivered.
    chosen = {} if isinstance(params, OrtParams) or precision != "int8" else {"for_cpu": "arm"}
    return params_of(QuantizeParams, {**chosen, **given, "precision": precision}, purpose=purpose)


def proof_options(steps: Sequence[Step], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the proof: with `inputs`, or with the samples that calibration holds back."""
    wanted = fields_of(ValidateParams, options)
    quantizing = next((step.params for step in steps if isinstance(step.params, QuantizeParams)), None)
    if quantizing is None:
        return wanted
    if quantizing.calib is not None and _is_same(quantizing.calib, wanted.get("inputs")):
        return {**wanted, "inputs": quantizing.calib, "part": "held-back"}
    return {**wanted, "preprocess_is_shared": quantizing.calib is not None}


def _is_same(calib: Path, inputs: object) -> bool:
    """Return whether the proof uses the folder of calibration, and so the held-back samples."""
    if not isinstance(inputs, str | os.PathLike):
        return inputs is None
    try:
        return os.path.samefile(calib, inputs)
    except (OSError, ValueError):  # a missing folder is reported by its reader
        return False


def holds_back(params: QuantizeParams, validation: ValidateParams | None) -> bool:
    """Return whether calibration holds samples back: for the proof, or to choose between methods."""
    if validation is None:
        return params.method == "auto"
    return validation.part == "held-back" or params.method == "auto" or bool(validation.budget)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def fields_of(model: type[BaseModel], options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in model.model_fields}
