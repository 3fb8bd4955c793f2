"""Several artefacts of one command: all are checked before the first starts, and one's failure leaves the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from onnxport.core.child_process import reuse_children
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import SUFFIXES, Artifact, Staging, path_of, writing
from onnxport.formats.remote import beside
from onnxport.pipelines import runner
from onnxport.pipelines.environment import RUNS_ON, describe, require
from onnxport.pipelines.failures import failure_of
from onnxport.pipelines.registry import target
from onnxport.pipelines.runner.clock import Progress
from onnxport.pipelines.runner.jobs import Job, StrPath, conversion
from onnxport.pipelines.runner.shared_references import Sharing
from onnxport.quantize.params import CALIBRATED, calibrated_fields
from onnxport.reports.pipeline_report import (
    CellRecord,
    FailureRecord,
    NodeRecord,
    PipelineReport,
    exit_code_of,
)
from onnxport.validate.params import ValidateParams

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from onnxport.reports.run_report import RunReport

# The precision that no file is named after.
OWN = "fp32"


@dataclass(frozen=True)
class Part:
    """One artefact of several.

    Attributes:
        name: MODEL/TARGET, or MODEL/TARGET/PRECISION.
        values: the precision, if several are asked for.
    """

    name: str
    job: Job
    values: Mapping[str, str]


def conversions(
    models: Sequence[StrPath],
    targets: Sequence[str],
    folder: StrPath | None,
    options: Mapping[str, Any],
    **wishes: Any,
) -> tuple[Part, ...]:
    """Return an artefact for each model, target and precision; `folder` holds them, else each model's own folder.

    They are named <stem><suffix>, with several precisions <stem>_<precision><suffix> but for fp32.

    Args:
        options: as `jobs.conversion` takes them; `precision` may be a list.
        wishes: see `jobs.conversion`.

    Raises:
        OnnxportError: what keeps any of them from starting; nothing has run.
    """
    precisions = _precisions(options)
    if options.get("report_tensors") is not None:
        raise UsageError(
            "--report-tensors writes the tensors of one artefact, and several are made",
            fix="leave it out, or convert to one target",
        )
    models = [path_of(model, "a model", fix="give paths of .onnx files") for model in models]
    _refuse_twins((str(model) for model in models), "model")
    _refuse_twins(targets, "target")
    _refuse_twins(precisions, "precision")
    for name in targets:
        stage = target(name)
        require((*stage.libraries, *RUNS_ON.get(stage.gives, ())), f"converting to {name}")
    fix = "give the path of a folder"
    place = None if folder is None else _folder(path_of(folder, "the output", fix=fix, writes=True))
    parts = []
    for model in models:
        for name in targets:
            for precision in precisions or (None,):
                asked = _options_for(name, precision, targets, precisions, options)
                ending = f"_{precision}" if precision not in (None, OWN) and len(precisions) > 1 else ""
                path = Artifact.open(model).path
                file = f"{path.stem}{ending.replace('-', '_')}{SUFFIXES[target(name).gives]}"
                output = beside(path, file) if place is None else place / file
                job = conversion(model, name, output, asked, **wishes)
                values = {"precision": precision} if precision and len(precisions) > 1 else {}
                parts.append(Part("/".join((path.stem, name, *values.values())), job, values))
    _refuse_twins((str(part.job.output) for part in parts), "output")
    for part in parts:
        _check_runtime(part.job)
    return tuple(parts)


def _options_for(
    name: str,
    precision: str | None,
    targets: Sequence[str],
    precisions: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the options that apply to one target and precision, without those of other targets or precisions."""
    fields = target(name).params.model_fields
    elsewhere = {field for other in targets for field in target(other).params.model_fields} - set(fields)
    if precision not in CALIBRATED and not CALIBRATED.isdisjoint(precisions):
        elsewhere |= set(calibrated_fields()) - set(fields)
    elsewhere -= set(ValidateParams.model_fields)
    asked = {key: value for key, value in options.items() if key not in (*elsewhere, "precision")}
    if precision is not None and (precision != OWN or OWN in _choices(fields.get("precision"))):
        asked["precision"] = precision
    return asked


def _choices(field: FieldInfo | None) -> set[str]:
    """Return the words that an optional field takes."""
    kinds = () if field is None else get_args(field.annotation)
    return {choice for kind in kinds for choice in get_args(kind)}


def _precisions(options: Mapping[str, Any]) -> tuple[str, ...]:
    asked = options.get("precision")
    if asked is None:
        return ()
    return (asked,) if isinstance(asked, str) else tuple(asked)


def _refuse_twins(names: Collection[str] | Iterator[str], what: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            fix = "rename one of the models" if what == "output" else "give it once"
            raise UsageError(f"the {what} {name} is given twice", fix=fix)
        seen.add(name)


def _folder(folder: Path) -> Path:
    """Return the folder of several artefacts, which need not exist (UsageError)."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"the output {folder} is a file", fix="several artefacts need a folder: give -o the name of one"
        )
    if folder.suffix.lower() in SUFFIXES.values():
        fix = "give -o the name of a folder: its files are named after the models"
        raise UsageError(f"the output {folder} has the name of one artefact, and several are made", fix=fix)
    return folder


@contextmanager
def _made(folders: Iterable[Path]) -> Iterator[None]:
    """Make the folders that are missing; remove those that are empty afterwards (MachineError)."""
    missing = [each for folder in folders for each in (folder, *folder.parents) if not each.exists()]
    try:
        for folder in missing:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def _check_runtime(job: Job) -> None:
    """Refuse settings of the runtime that judges a product (UsageError, MissingDependencyError)."""
    if job.validation is None:
        return
    from onnxport.runtimes.registry import find_runtime
    from onnxport.runtimes.settings import runtime_options

    gives = job.target.gives
    options = runtime_options(gives, job.validation.candidate_runtime, "--candidate-runtime")
    find_runtime(gives, options.runtime).check()


def run_all(
    parts: Sequence[Part],
    command: str,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
    explain: Callable[[Exception], FailureRecord] | None = None,
) -> PipelineReport:
    """Make all artefacts in turn; each model is loaded and its reference answers once per proof.

    Args:
        explain: describes an error that ends a part; failure_of unless given.
    """
    started = time.perf_counter()
    explain = explain or (lambda error: FailureRecord(**vars(failure_of(error))))
    nodes = []
    with (
        _made(part.job.output.parent for part in parts),
        reuse_children(several_jobs=True),
        Sharing() as sharing,
    ):
        for part in parts:
            began = time.perf_counter()
            outcome: dict[str, Any]
            try:
                named = None if progress is None else _Named(progress, part.name)
                run = runner.run(part.job, command, named, arguments=arguments, sharing=sharing)
                outcome = {"status": "made" if run.passed else "failed", "run": run}
            except Exception as error:  # a bug too: the other artefacts must not be lost
                outcome = {"status": "failed", "failure": explain(error)}
            finally:
                Staging.settled = False  # further products follow: Ctrl-C may still stop the run
            nodes.append(_node(part, round(time.perf_counter() - began, 4), outcome))
    cells = tuple(_cell(part, node) for part, node in zip(parts, nodes, strict=True))
    return PipelineReport(
        command=command,
        arguments=tuple(arguments),
        file=", ".join(dict.fromkeys(str(part.job.source.path) for part in parts)),
        nodes=tuple(nodes),
        cells=cells,
        seconds=round(time.perf_counter() - started, 4),
        environment=describe(("onnxruntime", "numpy")),
        exit_code=exit_code_of(tuple(nodes), cells),
    )


def _node(part: Part, seconds: float, outcome: dict[str, Any]) -> NodeRecord:
    stem, stage = part.job.source.path.stem, part.job.target.name
    return NodeRecord(name=part.name, model=stem, stage=stage, after="", seconds=seconds, **outcome)


def _cell(part: Part, node: NodeRecord) -> CellRecord:
    verdict, reason, code = "failed", node.broken, 0
    path: str | None = None
    if node.failure is not None:
        reason, code = node.failure.message, node.failure.exit_code
    if node.run is not None:
        verdict, code = node.run.artifacts[0].report.verdict, node.run.exit_code
        path = node.run.artifacts[0].path if node.run.passed else None
    return CellRecord(
        name=part.name,
        model=node.model,
        target=node.stage,
        values=dict(part.values),
        node=node.name,
        path=path,
        verdict=verdict,
        reason=reason,
        exit_code=code,
    )


@dataclass(frozen=True)
class _Named:
    """A progress display that names the artefact."""

    progress: Progress
    name: str

    def started(self, step: str) -> None:
        self.progress.started(f"{self.name}: {step}")

    def progressed(self, step: str, done: int, total: int) -> None:
        self.progress.progressed(f"{self.name}: {step}", done, total)

    def finished(self, step: str, seconds: float) -> None:
        self.progress.finished(f"{self.name}: {step}", seconds)


def runs_of(parts: Sequence[Part], report: PipelineReport) -> tuple[tuple[Path, RunReport], ...]:
    """Return the path and the report of every artefact; PipelineFailedError where one was not made."""
    report.check()
    found = []
    for part, node in zip(parts, report.nodes, strict=True):
        assert node.run is not None, "every artefact was made"
        found.append((part.job.output, node.run))
    return tuple(found)
