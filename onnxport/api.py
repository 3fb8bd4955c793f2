"""The functions behind `import onnxport`: the commands for Python callers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact, path_of
from onnxport.pipelines import runner
from onnxport.pipelines.params import params_of
from onnxport.pipelines.runner import validation
from onnxport.pipelines.runner.clock import Progress
from onnxport.pipelines.runner.jobs import (
    Export,
    Job,
    conversion,
    exportation,
    extraction,
    optimization,
    quantization,
)
from onnxport.reports.run_report import RunReport
from onnxport.reports.with_urls import with_urls
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import SamplesParams, ValidateParams
from onnxport.validate.report import Report

if TYPE_CHECKING:
    from onnxport.bench.report import BenchReport
    from onnxport.deployment.report import DeploymentReport
    from onnxport.inspection.memory.report import MemoryPlan
    from onnxport.keyword_options import (
        BenchOptions,
        ConvertOptions,
        DebugOptions,
        DeploymentOptions,
        ExportOptions,
        ExtractOptions,
        OptimizeOptions,
        ProfileOptions,
        QuantizeOptions,
        SamplesOptions,
        ValidateOptions,
    )
    from onnxport.pipelines.executors.base import Watcher
    from onnxport.profiling.report import ProfileReport
    from onnxport.reports.pipeline_report import PipelineReport
    from onnxport.runtimes.base import Runtime
    from onnxport.validate.sample_files import SampleFiles

StrPath = str | os.PathLike[str]
ShapeOption = str | Sequence[str] | Mapping[str, Sequence[int | str | None]]


@dataclass(frozen=True)
class ConversionResult:
    """A proven artefact.

    Attributes:
        path: the artefact's main file.
        report: the verdict with its figures.
        run: the report of the whole run, as `--json` prints it: sizes, timings, notes, versions.
    """

    path: Path
    report: Report
    run: RunReport

    def __repr__(self) -> str:
        return f"ConversionResult(path={str(self.path)!r}, verdict={self.report.verdict!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the report of the run, as `--json` prints it."""
        return self.run.to_dict()

    def _repr_markdown_(self) -> str:
        """Return the Markdown report, which notebooks show."""
        from onnxport.reports.run import markdown
        from onnxport.reports.run_report import name_samples_keyword

        return name_samples_keyword(markdown.view(self.run))


@overload
def convert_model(
    model: StrPath,
    to: str,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    operators: StrPath | None = None,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> ConversionResult: ...


@overload
def convert_model(
    model: StrPath,
    to: list[str] | tuple[str, ...],
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    operators: StrPath | None = None,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> tuple[ConversionResult, ...]: ...


def convert_model(
    model: StrPath,
    to: str | Sequence[str],
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    operators: StrPath | None = None,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> ConversionResult | tuple[ConversionResult, ...]:
    """Convert an ONNX file and prove the result against ONNX Runtime's answers on the original.

    Args:
        model: an `.onnx` file.
        to: the target, "tflite", "coreml" or "ort"; or a list of targets, for which the model is loaded and its
            answers are computed once. `precision` may be a list, too, then.
        output: the artefact's path; beside the model, under the target's suffix, unless given. For a list of targets
            a folder.
        validate: False delivers the artefact without a proof; its report and its provenance say so.
        keep_rejected: keep a candidate that fails the proof, as `<stem>.rejected<suffix>`.
        latency: False skips the timing of a lower precision.
        operators: a file with definitions of the model's own operators as ONNX functions.
        progress: receives the start and the end of each step.
        **options: the fields of the target's params (converters.params) and of ValidateParams, spelled as the options
            of `onnxport convert`: shape, layout, level, samples, seed, rtol, atol, inputs.

    Returns:
        The artefact; for a list of targets one per target and precision, in this order.

    Raises:
        NotProvenError: the candidate differs from the model, or the proof was inconclusive; its `report` has the
            figures. No artefact is left.
        PipelineFailedError: one of several artefacts was not made; the others were. Its `report` has all of them.
        OnnxportError: another error; see docs/reference/exit-codes.md for its kinds.

    Examples:
        >>> result = onnxport.convert_model("digits.onnx", to="tflite")
        >>> result.path.name, result.report.verdict
        ('digits.tflite', 'proven')
        >>> made = onnxport.convert_model("digits.onnx", to=["ort", "tflite"], output="made")
        >>> [each.path.name for each in made]
        ['digits.ort', 'digits.tflite']
    """
    if not isinstance(to, str):
        # Imported here: it has the report of several runs.
        from onnxport.pipelines.runner import batch

        wishes = {
            "validate": validate,
            "keep_rejected": keep_rejected,
            "latency": latency,
            "operators": operators,
        }
        parts = batch.conversions((model,), to, output, options, **wishes)
        made = batch.runs_of(parts, batch.run_all(parts, "convert", progress))
        runs = [(path, with_urls(run)) for path, run in made]
        return tuple(ConversionResult(path, run.artifacts[0].report, run) for path, run in runs)
    job = conversion(
        model,
        to,
        output,
        options,
        validate=validate,
        keep_rejected=keep_rejected,
        latency=latency,
        operators=operators,
    )
    return _run(job, "convert", progress)


def quantize_model(
    model: StrPath,
    precision: str,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    latency: bool = True,
    operators: StrPath | None = None,
    progress: Progress | None = None,
    **options: Unpack[QuantizeOptions],
) -> ConversionResult:
    """Quantize an ONNX file and measure the loss against the original.

    `validate`, `keep_rejected`, `latency`, `operators`, `progress` and the errors are those of `convert_model`.

    Args:
        model: an `.onnx` file.
        precision: "int8", "int16x8", "dynamic", "fp16", "bf16", "int8-weights" or "int4-weights".
        output: the result's path; `<stem>_<precision>.onnx` beside the model unless given.
        **options: the fields of QuantizeParams (quantize.params) and of ValidateParams: calib, method, budget, ...

    Examples:
        >>> result = onnxport.quantize_model("digits.onnx", "int8", calib="test.npz", budget={"sqnr": 20})
        >>> result.path.name, result.report.verdict
        ('digits_int8.onnx', 'proven')
    """
    job = quantization(
        model,
        precision,
        output,
        options,
        validate=validate,
        keep_rejected=keep_rejected,
        latency=latency,
        operators=operators,
    )
    return _run(job, "quantize", progress)


def export_model(
    source: StrPath,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ExportOptions],
) -> ConversionResult:
    """Export a framework's model to ONNX and prove the result against the framework's own answers.

    `validate`, `keep_rejected`, `progress` and the errors are those of `convert_model`.

    Args:
        source: a file or folder of PyTorch, TensorFlow, scikit-learn, a boosting library or PaddlePaddle, or
            "package.module:function", which builds a model.
        output: the ONNX file; beside the source file, or `<name>.onnx` in the current folder, unless given.
        **options: the fields of ExportParams (exporters.params) and of ValidateParams: weights, input, dynamic, ...

    Examples:
        >>> result = onnxport.export_model("linear.skops", "linear.onnx")
        >>> result.report.verdict
        'proven'
    """
    job = exportation(source, output, options, validate=validate, keep_rejected=keep_rejected)
    return _run(job, "export", progress)


def optimize_model(
    model: StrPath,
    output: StrPath | None = None,
    *,
    validate: bool = True,
    keep_rejected: bool = False,
    operators: StrPath | None = None,
    progress: Progress | None = None,
    **options: Unpack[OptimizeOptions],
) -> ConversionResult:
    """Convert an ONNX file to another opset, simplify it, and prove that it computes the same.

    `validate`, `keep_rejected`, `operators`, `progress` and the errors are those of `convert_model`.

    Args:
        model: an `.onnx` file.
        output: the result's path; `<stem>_optimized.onnx` beside the model unless given.
        **options: the fields of OptimizeParams (optimizers.params) and of ValidateParams: opset, simplify, fp16, ...

    Examples:
        >>> result = onnxport.optimize_model("digits.onnx", opset=20)
        >>> result.path.name, result.report.verdict
        ('digits_optimized.onnx', 'proven')
    """
    job = optimization(
        model, output, options, validate=validate, keep_rejected=keep_rejected, operators=operators
    )
    return _run(job, "optimize", progress)


def extract_model(
    model: StrPath,
    output: StrPath | None = None,
    *,
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    validate: bool = True,
    keep_rejected: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ExtractOptions],
) -> ConversionResult:
    """Cut a part out of an ONNX file, and prove it against the values that the whole model has there.

    `validate`, `keep_rejected`, `progress` and the errors are those of `convert_model`.

    Args:
        model: an `.onnx` file.
        output: the part's path; `<stem>_part.onnx` beside the model unless given.
        inputs: names of the values at which the part begins; those inputs of the model that it needs, unless given.
        outputs: names of the values at which it ends; the model's outputs unless given.
        **options: samples_from, a folder with inputs of the whole model, and the fields of ValidateParams but `inputs`.

    Examples:
        >>> result = onnxport.extract_model("digits.onnx", "head.onnx", inputs="relu1", outputs="logits")
        >>> with onnxport.load(result.path) as runtime:
        ...     [each.name for each in runtime.inputs]
        ['relu1']
    """
    cut = {name: given for name, given in (("inputs", inputs), ("outputs", outputs)) if given}
    job = extraction(model, output, {**options, **cut}, validate=validate, keep_rejected=keep_rejected)
    return _run(job, "extract", progress)


def _run(job: Job | Export, command: str, progress: Progress | None) -> ConversionResult:
    """Run a job; NotProvenError if its result is not delivered."""
    run = with_urls(runner.run(job, command, progress))
    run.check()
    return ConversionResult(job.output, run.artifacts[0].report, run)


def validate_model(
    reference: StrPath,
    candidate: StrPath,
    *,
    progress: Progress | None = None,
    **options: Unpack[ValidateOptions],
) -> Report:
    """Compare what two model files compute; both may be `.onnx`, `.ort`, `.tflite` or `.mlpackage`.

    Args:
        **options: the fields of ValidateParams: samples, seed, rtol, atol, inputs, shape, ...

    Returns:
        The verdict with figures per output; `passed` is True if the candidate is equivalent.

    Examples:
        >>> result = onnxport.convert_model("digits.onnx", to="ort")
        >>> onnxport.validate_model("digits.onnx", result.path).passed
        True
    """
    params = params_of(ValidateParams, options, purpose="validation")
    run = validation.validate(Artifact.open(reference), Artifact.open(candidate), params, progress)
    return with_urls(run.artifacts[0].report)


def write_samples(
    model: StrPath, output: StrPath, *, progress: Progress | None = None, **options: Unpack[SamplesOptions]
) -> SampleFiles:
    """Write the inputs that a validation of a model generates, as files to look at, edit and feed.

    Args:
        model: an `.onnx`, `.ort`, `.tflite` or `.mlpackage` file.
        output: a new folder.
        **options: the fields of SamplesParams: shape, samples, seed, timeout, memory_limit.

    Returns:
        The files with their shapes, and what each input may hold.

    Raises:
        UsageError: the folder exists, or no inputs were found on which the model runs.

    Examples:
        >>> found = onnxport.write_samples("digits.onnx", "samples", samples=2)
        >>> found.files[0].path
        '01-image.npz'
    """
    from onnxport.pipelines.runner import sample_files

    params = params_of(SamplesParams, options, purpose="generating inputs")
    return sample_files.write_samples(Artifact.open(model), Path(output), params, progress)


def debug_model(
    reference: StrPath,
    candidate: StrPath,
    output: StrPath | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[DebugOptions],
) -> Report:
    """Find the ONNX node at which a candidate begins to differ.

    Args:
        reference: an `.onnx` file.
        candidate: an `.onnx`, `.ort`, `.tflite` or `.mlpackage` file with the same inputs and outputs.
        output: a folder for the node as a separate model, with its inputs and both answers.
        **options: the fields of DebugParams: those of ValidateParams, memory_limit, layers.

    Returns:
        The verdict as from `validate_model`; its `diagnosis` names the node.

    Examples:
        >>> result = onnxport.convert_model("digits.onnx", to="ort")
        >>> report = onnxport.debug_model("digits.onnx", result.path)
        >>> report.diagnosis.node is None  # nothing differs
        True
    """
    params = params_of(DebugParams, options, purpose="debugging")
    folder = None if output is None else path_of(output, "the output", fix="give the path of a folder")
    run = validation.debug(Artifact.open(reference), Artifact.open(candidate), params, folder, progress)
    return with_urls(run.artifacts[0].report)


def plan_memory(model: StrPath, shape: ShapeOption | None = None) -> MemoryPlan:
    """Plan the memory and the multiplications of one run of a model, node by node, without running it.

    Args:
        model: an `.onnx`, `.ort` or `.tflite` file.
        shape: input name to sizes, for an `.onnx` file with open dimensions; an open batch is 1 unless given.

    Returns:
        The plan: `peak` and `peak_node`, `arena`, `buffers` with offsets, `macs`, `nodes`.

    Raises:
        UsageError: an open size that was not given, sizes that contradict the model, or another format.
        InputError: a file that is missing or damaged.

    Examples:
        >>> plan = onnxport.plan_memory("digits.onnx")
        >>> plan.peak_node, plan.inputs  # bytes
        ('bn2', 256)
    """
    from onnxport.formats.input_shapes import parse_shapes
    from onnxport.inspection import memory

    return memory.plan_memory(model, parse_shapes(shape or {}))


def inspect_deployment(
    model: StrPath, runs_on: str | Iterable[str] = "all", **options: Unpack[DeploymentOptions]
) -> DeploymentReport:
    """Return which runtimes run a model, completely or in part, which nodes fall back and why.

    Args:
        model: an `.onnx` file; some runtimes take other formats too.
        runs_on: names of runtimes as in `onnxport inspect --runs-on`, or "all".
        **options: the fields of DeploymentParams: shape, timeout, error_on_fallback.

    Raises:
        MissingDependencyError: a named runtime is missing, and its operators are not known either.
        OnnxportError: another error; see docs/reference/exit-codes.md for its kinds.

    Examples:
        >>> report = onnxport.inspect_deployment("digits.onnx", "ort-cpu")
        >>> [(each.runtime, each.extent) for each in report.placements]
        [('ort-cpu', 'all')]
    """
    from onnxport.deployment.analysis import analyze_deployment
    from onnxport.deployment.params import DeploymentParams

    words = runs_on if isinstance(runs_on, str) else tuple(runs_on)
    if not words:
        raise UsageError("no runtime is given", fix='give runs_on="all", or names of runtimes')
    params = params_of(DeploymentParams, {"runs_on": words, **options}, purpose="inspection")
    return with_urls(analyze_deployment(model, params))


def profile_model(
    model: StrPath, *, progress: Progress | None = None, **options: Unpack[ProfileOptions]
) -> ProfileReport:
    """Measure the time of each ONNX node of a model in ONNX Runtime or LiteRT.

    Args:
        model: an `.onnx`, `.ort` or `.tflite` file.
        **options: the fields of ProfileParams: source, runs, warmup, threads, provider, level, shape, inputs, ...

    Raises:
        MissingDependencyError: a Core ML package, which only Xcode can profile.
        MachineError: the runtime crashed or hung.
        OnnxportError: another error; see docs/reference/exit-codes.md for its kinds.

    Examples:
        >>> report = onnxport.profile_model("digits.onnx", runs=5)
        >>> report.nodes[-1].op
        'Gemm'
    """
    from onnxport.pipelines.runner import measurements
    from onnxport.profiling.params import ProfileParams

    params = params_of(ProfileParams, options, purpose="a profile")
    return with_urls(measurements.profile(Artifact.open(model), params, progress).report)


def bench_models(
    models: StrPath | Iterable[StrPath], *, progress: Progress | None = None, **options: Unpack[BenchOptions]
) -> BenchReport:
    """Measure speed, size and memory use of models on this machine, in separate processes and in turns.

    Args:
        models: one or several `.onnx`, `.ort`, `.tflite` and `.mlpackage` files.
        progress: receives the start and the end of each step.
        **options: the fields of BenchParams (bench.params): runs, warmup, threads, providers, levels, batch, ...

    Returns:
        A row per model and setting. A failed measurement is a row with its reason; the `exit_code` of rows and report
        are those of the command.

    Raises:
        OnnxportError: nothing was measured: a missing file, an invalid option, or an open size without a value.

    Examples:
        >>> report = onnxport.bench_models("digits.onnx", runs=5, threads=1)
        >>> report.rows[0].latency.median < 1000  # milliseconds
        True
    """
    from onnxport.bench.params import BenchParams
    from onnxport.pipelines.runner import measurements

    given = (models,) if isinstance(models, str | os.PathLike) else tuple(models)
    params = params_of(BenchParams, options, purpose="a bench")
    return with_urls(measurements.bench([Artifact.open(model) for model in given], params, progress))


def run_pipeline(
    pipeline: StrPath,
    targets: Iterable[str] = (),
    *,
    frozen: bool = False,
    update_sources: bool = False,
    paranoid: bool = False,
    jobs: int = 1,
    memory_limit: str | None = None,
    scheduler: str | None = None,
    remote_cache: str | None = None,
    remote_cache_read_only: bool = False,
    progress: Watcher | None = None,
) -> PipelineReport:
    """Make the artefacts of a pipeline.yaml, each proven; unchanged ones come from the cache.

    Args:
        pipeline: the file; paths in it are relative to its folder.
        targets: names of targets, as `phone`, `model/phone` or `model/phone/int8`; all unless given.
        frozen: whether everything must match pipeline.lock.
        update_sources: whether URLs may have other content than pipeline.lock says.
        paranoid: whether to read large files whose inode, size and time are those of an earlier run.
        jobs: number of products made at a time; from two on in separate processes, which need no
            `if __name__ == "__main__"`.
        memory_limit: maximum estimated memory of these together, as "8GB"; most of the free memory unless given.
        scheduler: a Dask scheduler whose workers make them instead, as tcp://host:8786.
        remote_cache: the URL of a folder of products that machines share, as s3://bucket/cache.
        remote_cache_read_only: whether to write no products there.
        progress: receives the progress of each product.

    Raises:
        PipelineFailedError: something failed, and the rest was made; its `report` has the details, its `exit_code` is
            that of the command.
        OnnxportError: the file is wrong; nothing was done.

    Examples:
        >>> print(Path("pipeline.yaml").read_text())
        version: 1
        model: digits.onnx
        targets:
          phone: {to: ort, max_size: 1MB}
        >>> report = onnxport.run_pipeline("pipeline.yaml")
        >>> [(cell.name, cell.verdict) for cell in report.cells]
        [('digits/phone', 'proven')]
    """
    from onnxport.core.memory import bytes_of
    from onnxport.pipelines.cache.shared_cache import SharedCache
    from onnxport.pipelines.execution.run import run

    path = path_of(pipeline, "a pipeline", fix="give a path to a pipeline.yaml")
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise UsageError(f"jobs: {jobs!r} is not allowed", fix="give 1 or more")
    try:
        limit = None if memory_limit is None else bytes_of(memory_limit)
    except ValueError as error:
        raise UsageError(f"{memory_limit!r} is not a memory size", fix=str(error)) from None
    report = run(
        path,
        targets=(targets,) if isinstance(targets, str) else tuple(targets),
        frozen=frozen,
        update_sources=update_sources,
        paranoid=paranoid,
        jobs=jobs,
        memory_limit=limit,
        scheduler=scheduler,
        shared=SharedCache(remote_cache, writes=not remote_cache_read_only) if remote_cache else None,
        watcher=progress,
    )
    report = with_urls(report)
    report.check()
    return report


def load(path: StrPath, *, runtime: str = "auto", function: str = "") -> Runtime:
    """Load an `.onnx`, `.ort`, `.tflite` or `.mlpackage` file to run it; use the result as a context manager.

    `run({name: array})` takes and returns the ONNX model's names and dtypes in every format.

    Args:
        runtime: the runtime, if there is a choice (docs/guide/runtimes.md): "tract" for an `.onnx` file.
        function: the function of an `.mlpackage`; its default one unless given.

    Raises:
        InputError: the file is no model, or the runtime refuses it.
        UsageError: there is no such runtime.
        MissingDependencyError: the runtime is not installed.

    Examples:
        >>> with onnxport.load("digits.onnx") as runtime:
        ...     answer = runtime.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        >>> answer["logits"].shape
        (1, 10)
    """
    from onnxport import runtimes
    from onnxport.runtimes.settings import runtime_options

    artifact = Artifact.open(path_of(path, "a model", fix="give a path to a model file"))
    given = {"runtime": runtime} | ({"function": function} if function else {})
    return runtimes.load(artifact.path, runtime_options(artifact.format, given, "load"))
