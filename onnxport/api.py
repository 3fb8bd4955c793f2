"""The functions behind `import onnxport`: what the command line does, for Python callers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact, path_of
from onnxport.pipelines import runner, validation_run
from onnxport.pipelines.jobs import conversion, exportation, optimization, quantization
from onnxport.pipelines.params import params_of
from onnxport.pipelines.step_times import Progress
from onnxport.reports.run_report import RunReport
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Report

if TYPE_CHECKING:
    from onnxport.bench.report import BenchReport
    from onnxport.deployment.report import DeploymentReport
    from onnxport.pipelines.executors.progress import Watcher
    from onnxport.profiling.report import ProfileReport
    from onnxport.reports.pipeline_report import PipelineReport
    from onnxport.runtimes.base import Runtime

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class ConversionResult:
    """A proven artefact.

    Attributes:
        path: the artefact's main file.
        report: the verdict on it and its figures.
        run: all of the run: sizes, timings, notes, versions; what `--json` prints.
    """

    path: Path
    report: Report
    run: RunReport


def convert_model(
    model: StrPath,
    to: str,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> ConversionResult:
    """Converts an ONNX file and proves the result against ONNX Runtime's answers on the original.

    Args:
        model: an `.onnx` file.
        to: the target, "tflite", "coreml" or "ort".
        output: where the artefact goes; beside the model, under the target's suffix, unless given.
        validate: False lets the artefact out unproven; its report and its provenance say so.
        keep_rejected: keeps a candidate that fails the proof, as <stem>.rejected<suffix>.
        latency: False leaves a result of lower precision untimed.
        progress: is told which step starts and ends.
        **options: the fields of the target's params (converters.params) and of ValidateParams, as the options
            of `onnxport convert` are spelled: shape, layout, level, samples, seed, rtol, atol, inputs.

    Raises:
        NotProvenError: the candidate differs from the model or nothing could prove that it does not; its
            `report` has the figures. No artefact is left.
        OnnxportError: what else prevents the conversion; see docs/exit-codes.md for its kinds.
    """
    job = conversion(
        model, to, output, options, validate=validate, keep_rejected=keep_rejected, latency=latency
    )
    return _result(job.output, runner.run(job, "convert", progress))


def quantize_model(
    model: StrPath,
    precision: str,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> ConversionResult:
    """Brings an ONNX file to lower precision and measures what that costs against the original.

    Args:
        model: an `.onnx` file.
        precision: "int8", "int16x8", "dynamic", "fp16", "bf16", "int8-weights" or "int4-weights".
        output: where the result goes; <stem>_<precision>.onnx beside the model unless given.
        validate, keep_rejected, latency, progress: see convert_model.
        **options: the fields of QuantizeParams (quantize.params) and of ValidateParams, as the options of
            `onnxport quantize` are spelled: calib, method, budget, ...

    Raises:
        NotProvenError: the result costs more than it may; its `report` has the figures. No artefact is left.
        OnnxportError: what else prevents it; see docs/exit-codes.md for its kinds.
    """
    job = quantization(
        model, precision, output, options, validate=validate, keep_rejected=keep_rejected, latency=latency
    )
    return _result(job.output, runner.run(job, "quantize", progress))


def export_model(
    source: StrPath,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> ConversionResult:
    """Exports a framework's model to ONNX and proves the result against the framework's own answers.

    Args:
        source: a file or folder of PyTorch, TensorFlow, scikit-learn, a boosting library or PaddlePaddle, or
            "package.module:function", which builds a model.
        output: where the ONNX file goes; <name>.onnx in the current folder, or beside the file, unless given.
        validate, keep_rejected, progress: see convert_model.
        **options: the fields of ExportParams (exporters.params) and of ValidateParams, as the options of
            `onnxport export` are spelled: weights, input, dynamic, trust, ...

    Raises:
        NotProvenError: the ONNX model computes something else; its `report` has the figures. No artefact is left.
        OnnxportError: what else prevents it; see docs/exit-codes.md for its kinds.
    """
    job = exportation(source, output, options, validate=validate, keep_rejected=keep_rejected)
    return _result(job.output, runner.run(job, "export", progress))


def optimize_model(
    model: StrPath,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> ConversionResult:
    """Brings an ONNX file to another opset, simplifies it, and proves that it computes the same.

    Args:
        model: an `.onnx` file.
        output: where the result goes; <stem>_optimized.onnx beside the model unless given.
        validate, keep_rejected, progress: see convert_model.
        **options: the fields of OptimizeParams (optimizers.params) and of ValidateParams, as the options of
            `onnxport optimize` are spelled: opset, simplify, level, fp16, ...

    Raises:
        NotProvenError: the result computes something else; its `report` has the figures. No artefact is left.
        OnnxportError: what else prevents it; see docs/exit-codes.md for its kinds.
    """
    job = optimization(model, output, options, validate=validate, keep_rejected=keep_rejected)
    return _result(job.output, runner.run(job, "optimize", progress))


def _result(output: Path, run: RunReport) -> ConversionResult:
    """What a run made; NotProvenError where that may not leave."""
    run.check()
    return ConversionResult(output, run.artifacts[0].report, run)


def validate_model(
    reference: StrPath, candidate: StrPath, *, progress: Progress | None = None, **options: Any
) -> Report:
    """Compares what two model files compute; both may be `.onnx`, `.ort`, `.tflite` or `.mlpackage`.

    Args:
        **options: the fields of ValidateParams: samples, seed, rtol, atol, inputs, shape, ...

    Returns:
        The verdict with its figures per output; `passed` is True if the candidate is equivalent.
    """
    params = params_of(ValidateParams, options, purpose="validation")
    run = validation_run.validate(Artifact.open(reference), Artifact.open(candidate), params, progress)
    return run.artifacts[0].report


def debug_model(
    reference: StrPath,
    candidate: StrPath,
    output: StrPath | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Finds the ONNX node at which a candidate begins to differ.

    Args:
        reference: an `.onnx` file.
        candidate: an `.onnx`, `.ort`, `.tflite` or `.mlpackage` file with the same inputs and outputs.
        output: a folder that gets the node as a model of its own, with its inputs and both answers.
        **options: the fields of DebugParams: those of ValidateParams, memory_limit, layers.

    Returns:
        The verdict as `validate_model` gives it; its `diagnosis` names the node.
    """
    params = params_of(DebugParams, options, purpose="debugging")
    folder = None if output is None else path_of(output, "the output", fix="give the path of a folder")
    run = validation_run.debug(Artifact.open(reference), Artifact.open(candidate), params, folder, progress)
    return run.artifacts[0].report


def inspect_deployment(
    model: StrPath, runs_on: str | Iterable[str] = "all", **options: Any
) -> DeploymentReport:
    """Which runtimes take a model, wholly or in part, which nodes fall back and why.

    Args:
        model: an `.onnx` file; some runtimes take other formats, too.
        runs_on: names of runtimes, as `onnxport inspect --runs-on` has them, or "all".
        **options: the fields of DeploymentParams: shape, timeout, error_on_fallback.

    Raises:
        MissingDependencyError: a runtime that was named is not here, and nothing is known of what it takes.
        OnnxportError: what else prevents it; see docs/exit-codes.md for its kinds.
    """
    from onnxport.deployment.analysis import deployment
    from onnxport.deployment.params import DeploymentParams

    words = runs_on if isinstance(runs_on, str) else tuple(runs_on)
    if not words:
        raise UsageError("no runtime is named", fix='give runs_on="all", or names of runtimes')
    params = params_of(DeploymentParams, {"runs_on": words, **options}, purpose="inspection")
    return deployment(model, params)


def profile_model(model: StrPath, *, progress: Progress | None = None, **options: Any) -> ProfileReport:
    """Where the time of a run goes, in ONNX Runtime or LiteRT, told in nodes of the ONNX model.

    Args:
        model: an `.onnx`, `.ort` or `.tflite` file.
        **options: the fields of ProfileParams: source, runs, warmup, threads, provider, level, shape, inputs, ...

    Raises:
        MissingDependencyError: a package for Core ML, whose times only Xcode tells.
        MachineError: the runtime crashed or hung.
        OnnxportError: what else prevents it; see docs/exit-codes.md for its kinds.
    """
    from onnxport.pipelines.runner import measurements
    from onnxport.profiling.params import ProfileParams

    params = params_of(ProfileParams, options, purpose="a profile")
    return measurements.profile(Artifact.open(model), params, progress).report


def bench_models(
    models: StrPath | Iterable[StrPath], *, progress: Progress | None = None, **options: Any
) -> BenchReport:
    """Measures how fast, how large and how hungry models are on this machine, each in a process of its own, in turns.

    Args:
        models: one or several `.onnx`, `.ort`, `.tflite` and `.mlpackage` files.
        progress: is told which step starts and ends.
        **options: the fields of BenchParams (bench.params), as the options of `onnxport bench` are spelled: runs,
            warmup, threads, providers, levels, batch, inputs, shape, ...

    Returns:
        A row per model and setting. What could not be measured is a row that says why; its `exit_code` and the
        report's are what the command would have ended with.

    Raises:
        OnnxportError: nothing was measured: a file that is missing, an option that cannot be meant, a size that nobody
            gave.
    """
    from onnxport.bench.params import BenchParams
    from onnxport.pipelines.runner import measurements

    given = (models,) if isinstance(models, str | os.PathLike) else tuple(models)
    params = params_of(BenchParams, options, purpose="a bench")
    return measurements.bench([Artifact.open(model) for model in given], params, progress)


def run_pipeline(
    pipeline: StrPath,
    targets: Iterable[str] = (),
    *,
    frozen: bool = False,
    jobs: int = 1,
    memory_limit: str | None = None,
    scheduler: str | None = None,
    progress: Watcher | None = None,
) -> PipelineReport:
    """Makes the artefacts that a pipeline.yaml asks for, each proven; what is unchanged comes out of the cache.

    Args:
        pipeline: the file; paths in it are relative to its folder.
        targets: names of those to make, as `phone`, `model/phone` or `model/phone/int8`; all unless given.
        frozen: whether all has to be as pipeline.lock says.
        jobs: how many products are made at a time, each in a process of its own from two on. Like all that starts
            processes, it needs no `if __name__ == "__main__"`: they are no copies of the caller's.
        memory_limit: what these may take together, as estimated: "8GB"; most of what is free unless given.
        scheduler: of a Dask cluster whose workers make them instead, as tcp://host:8786.
        progress: is told how each product comes along.

    Raises:
        PipelineFailedError: something failed, which kept nothing else from being made; its `report` says what, its
            `exit_code` what the command would have ended with.
        OnnxportError: the file cannot be meant, and nothing was done.
    """
    from onnxport.core.memory import bytes_of
    from onnxport.pipelines.execution.run import run

    path = path_of(pipeline, "a pipeline", fix="give a path to a pipeline.yaml")
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise UsageError(f"jobs has the value {jobs!r}", fix="give 1 or more")
    try:
        limit = None if memory_limit is None else bytes_of(memory_limit)
    except ValueError as error:
        raise UsageError(f"{memory_limit!r} is no size in memory", fix=str(error)) from None
    report = run(
        path,
        targets=(targets,) if isinstance(targets, str) else tuple(targets),
        frozen=frozen,
        jobs=jobs,
        memory_limit=limit,
        scheduler=scheduler,
        watcher=progress,
    )
    report.check()
    return report


def load(path: StrPath, *, runtime: str = "auto", function: str = "") -> Runtime:
    """Loads an `.onnx`, `.ort`, `.tflite` or `.mlpackage` file to run it; use the result as a context manager.

    `run({name: array})` takes and gives the ONNX model's names and dtypes, whatever the format.

    Args:
        runtime: who runs it, where that is a choice (docs/runtimes.md): "tract" for an `.onnx` file.
        function: which function of an `.mlpackage` is to answer; its default one unless given.

    Raises:
        InputError: no model, or one that the runtime refuses.
        UsageError: a runtime that there is not.
        MissingDependencyError: one that is not installed.
    """
    from onnxport import runtimes
    from onnxport.runtimes.settings import runtime_options

    artifact = Artifact.open(path_of(path, "a model", fix="give a path to a model file"))
    given = {"runtime": runtime} | ({"function": function} if function else {})
    return runtimes.load(artifact.path, runtime_options(artifact.format, given, "load"))
