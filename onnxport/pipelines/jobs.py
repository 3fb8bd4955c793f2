"""What a run is asked to do: a source, the steps, where the result goes, and how it is judged."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from onnxport.converters.params import OrtParams
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.artifact import FOLDERS, SUFFIXES, Artifact, path_of, writing
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines.params import check_known, params_of
from onnxport.pipelines.registry import OPTIMIZE, QUANTIZE, target
from onnxport.pipelines.stages import Stage
from onnxport.quantize.params import CALIBRATED, PRECISIONS, QuantizeParams, calibrated_fields
from onnxport.validate.params import ValidateParams


@dataclass(frozen=True)
class Step:
    """A stage with its params.

    Attributes:
        made: its product, where another run made and proved it already; never of the last step.
    """

    stage: Stage
    params: BaseModel
    made: Artifact | None = None


@dataclass(frozen=True)
class Job:
    """One artefact to make.

    Attributes:
        validation: how to judge it; None to let it out unproven.
        keep_rejected: whether a candidate that fails stays, as <stem>.rejected<suffix>.
        latency: whether a lower precision is timed.
    """

    source: Artifact
    steps: Sequence[Step]
    output: Path
    validation: ValidateParams | None
    keep_rejected: bool = False
    latency: bool = True

    def __post_init__(self) -> None:
        first = self.steps[0].stage
        if self.source.format != first.takes:
            raise InputError(
                f"{self.source.path} is in {self.source.format} format", fix=f"give a .{first.takes} file"
            )
        suffix = SUFFIXES[self.target.gives]
        if self.output.suffix.lower() != suffix:
            with writing(self.output):
                if self.output.is_dir():
                    raise UsageError(f"the output {self.output} is a directory", fix="give -o a file name")
            raise UsageError(
                f"the output {self.output} does not end in {suffix}", fix="its name has to tell its format"
            )
        with writing(self.output):
            self._check_replaceable()
        with writing(self.output):
            if self.output.exists() and self.output.samefile(self.source.path):
                raise UsageError(f"the output {self.output} is the input", fix="give another path")
            if self.output.resolve() in self.source.path.resolve().parents:
                raise UsageError(
                    f"the output {self.output}, which is replaced as a whole, holds the input",
                    fix="give another path",
                )

    def _check_replaceable(self) -> None:
        """Refuses an output whose place is taken by something that is no artefact of its format (UsageError)."""
        mark = FOLDERS.get(self.target.gives)
        if mark is None and self.output.is_dir():
            raise UsageError(f"the output {self.output} is a directory", fix="give -o a file name")
        if mark is None or not self.output.exists():
            return
        if not self.output.is_dir() or (any(self.output.iterdir()) and not (self.output / mark).is_file()):
            kind = "a directory" if self.output.is_dir() else "a file"
            raise UsageError(
                f"the output {self.output} is {kind} and no Core ML package",
                fix="remove it, or give -o another name",
            )

    def check_spares(self, source: Artifact) -> None:
        """Refuses an output whose weights would take the place of the source's own (UsageError).

        Args:
            source: with all its files.
        """
        if self.target.gives != "onnx":
            return
        beside = self.output.with_name(f"{self.output.name}.data")
        for place in (self.output, beside):
            with writing(self.output):
                taken = place.exists() and any(place.samefile(file) for file in source.files)
            if taken:
                raise UsageError(
                    f"the output {self.output} would take the place of {place}, which holds weights of the input",
                    fix="give -o another name",
                )

    @property
    def target(self) -> Stage:
        """The stage that makes the artefact."""
        return self.steps[-1].stage

    @property
    def functions(self) -> Mapping[str, Path]:
        """The further models of a package with several functions."""
        further: Mapping[str, Path] = getattr(self.steps[-1].params, "function", {})
        return further

    @property
    def lowers(self) -> bool:
        """Whether a step lowers the precision on purpose."""
        return any(step.stage.lowers for step in self.steps)

    @property
    def rewrites(self) -> bool:
        """Whether a step runs passes on the graph, which can be checked one by one when the result is wrong."""
        return any(step.stage.rewrites for step in self.steps)


def conversion(
    model: str | os.PathLike[str],
    to: str,
    output: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
) -> Job:
    """The job of `onnxport convert` and `convert_model`: one target, beside the input unless `output` is given.

    With `calib` and a precision that takes samples it is two steps, and judged as a quantization is.

    Raises:
        UsageError: an unknown target or option, or a value that an option refuses.
        InputError: the model file is missing, unreadable or of another format.
    """
    stage = target(to)
    purpose = f"converting to {to}"
    check_known(options, stage.params, ValidateParams, purpose=purpose, further=calibrated_fields())
    steps = steps_to(stage, options, purpose)
    validation = params_of(ValidateParams, judged_on(steps, options), purpose=purpose)
    if not validate:
        check_waivable(options)
    source = Artifact.open(model)
    return Job(
        source=source,
        steps=steps,
        output=source.path.with_suffix(SUFFIXES[stage.gives])
        if output is None
        else path_of(output, "the output", fix="give the path of the file to write"),
        validation=validation if validate else None,
        keep_rejected=keep_rejected,
        latency=latency,
    )


def quantization(
    model: str | os.PathLike[str],
    precision: str | None,
    output: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
) -> Job:
    """The job of `onnxport quantize` and `quantize_model`: <stem>_<precision>.onnx beside the input unless `output`
    is given. It is judged on `inputs`, or on what calibration holds back of the samples.

    Raises:
        UsageError: an unknown precision or option, or a value that an option refuses.
        InputError: the model file is missing, unreadable or of another format.
    """
    purpose = "quantization"
    if precision is None:
        raise UsageError(
            "quantize to what?", fix=f"give one of {', '.join(f'--{each}' for each in PRECISIONS)}"
        )
    check_known(options, QuantizeParams, ValidateParams, purpose=purpose)
    asked = fields_of(QuantizeParams, options) | {"precision": precision}
    params = params_of(QuantizeParams, asked, purpose=purpose)
    steps = (Step(QUANTIZE, params),)
    validation = params_of(ValidateParams, judged_on(steps, options), purpose=purpose)
    if not validate:
        check_waivable(options)
    source = Artifact.open(model)
    beside = source.path.with_name(f"{source.path.stem}_{precision.replace('-', '_')}.onnx")
    return Job(
        source=source,
        steps=steps,
        output=beside
        if output is None
        else path_of(output, "the output", fix="give the path of the file to write"),
        validation=validation if validate else None,
        keep_rejected=keep_rejected,
        latency=latency,
    )


def optimization(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    *,
    validate: bool = True,
    keep_rejected: bool = False,
) -> Job:
    """The job of `onnxport optimize` and `optimize_model`: <stem>_optimized.onnx beside the input unless `output` is
    given.

    Raises:
        UsageError: an unknown option, or a value that an option refuses.
        InputError: the model file is missing, unreadable or of another format.
    """
    purpose = "optimization"
    check_known(options, OptimizeParams, ValidateParams, purpose=purpose)
    params = params_of(OptimizeParams, fields_of(OptimizeParams, options), purpose=purpose)
    validation = params_of(ValidateParams, fields_of(ValidateParams, options), purpose=purpose)
    if not validate:
        check_waivable(options)
    source = Artifact.open(model)
    return Job(
        source=source,
        steps=(Step(OPTIMIZE, params),),
        output=source.path.with_name(f"{source.path.stem}_optimized.onnx")
        if output is None
        else path_of(output, "the output", fix="give the path of the file to write"),
        validation=validation if validate else None,
        keep_rejected=keep_rejected,
    )


def steps_to(stage: Stage, options: Mapping[str, Any], purpose: str) -> tuple[Step, ...]:
    """The steps that make a target: its own, behind a quantization where `options` have samples for one.

    Raises:
        UsageError: a value that an option refuses, or one that says nothing beside the others.
    """
    params = params_of(stage.params, fields_of(stage.params, options), purpose=purpose)
    quantizing = _quantizing(params, options, purpose)
    return (*([Step(QUANTIZE, quantizing)] if quantizing else ()), Step(stage, params))


def _quantizing(params: BaseModel, options: Mapping[str, Any], purpose: str) -> QuantizeParams | None:
    """How a conversion quantizes a float model on the way; None where it does not.

    Raises:
        UsageError: options of quantization without samples, or with a precision that takes none.
    """
    # A name that the target has as well is the target's: TFLite's --io is not that of --fp16.
    names = [name for name in calibrated_fields() if name not in type(params).model_fields]
    given = {name: options[name] for name in names if options.get(name) is not None}
    asked = [name for name in given if name not in ValidateParams.model_fields]
    precision = getattr(params, "precision", None)
    if not asked:
        return None
    if "calib" not in asked:
        raise UsageError(
            f"{_option(asked[0])} is about quantizing, which needs samples of what the model will meet",
            fix="give a folder of them, --calib DIR, with --precision int8 or int16x8",
        )
    if precision not in CALIBRATED:
        raise UsageError(
            "--calib has samples that tell the ranges of int8 and int16x8"
            + (f", --precision {precision} needs none" if precision else ""),
            fix="give --precision int8, or leave --calib out",
        )
    if getattr(params, "function", {}):
        raise UsageError(
            "--calib quantizes one model, --function names further ones",
            fix="quantize each with onnxport quantize first, and convert the results",
        )
    # ONNX Runtime alone saturates, and of a step's product only the target leaves.
    chosen = {} if isinstance(params, OrtParams) or precision != "int8" else {"for_cpu": "arm"}
    return params_of(QuantizeParams, {**chosen, **given, "precision": precision}, purpose=purpose)


def judged_on(steps: Sequence[Step], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the proof: on `inputs`, or on what calibration holds back of its samples."""
    wanted = fields_of(ValidateParams, options)
    quantizing = next((step.params for step in steps if isinstance(step.params, QuantizeParams)), None)
    if quantizing is None:
        return wanted
    if quantizing.calib is not None and _is_same(quantizing.calib, wanted.get("inputs")):
        return {**wanted, "inputs": quantizing.calib, "part": "held-back"}
    return {**wanted, "preprocess_is_shared": quantizing.calib is not None}


def _is_same(calib: Path, inputs: object) -> bool:
    """Whether the judge is to be fed from the folder of calibration, of which he then gets what is held back."""
    if not isinstance(inputs, str | os.PathLike):
        return inputs is None
    try:
        return os.path.samefile(calib, inputs)
    except (OSError, ValueError):  # there is no such folder, which is for those to say who read it
        return False


def holds_back(params: QuantizeParams, validation: ValidateParams | None) -> bool:
    """Whether samples are kept out of calibration: for the judge, who has none of his own, or for choices."""
    if validation is None:
        return params.method == "auto"
    return validation.part == "held-back" or params.method == "auto" or bool(validation.budget)


# What a user demands of a proof; without one, nobody would check or write it.
_DEMANDS = ("budget", "metric", "report_tensors")


def check_waivable(options: Mapping[str, Any]) -> None:
    """Refuses demands on the proof of an artefact that is to leave without one (UsageError)."""
    for name in _DEMANDS:
        if options.get(name):
            raise UsageError(
                f"{_option(name)} asks of the proof what --no-validate leaves out",
                fix="give the one or the other",
            )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def fields_of(model: type[BaseModel], options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in model.model_fields}
