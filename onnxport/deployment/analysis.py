"""Every runtime that was named, asked where it is here and else estimated: a DeploymentReport."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from onnxport.core.errors import UsageError
from onnxport.deployment.estimation import Estimate
from onnxport.deployment.model_variants import Workshop
from onnxport.deployment.params import ALL, DeploymentParams
from onnxport.deployment.placement import Subject, asked, estimated
from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.deployment.runtimes import Runtime, chosen
from onnxport.deployment.suggestions import Mender
from onnxport.formats.artifact import Artifact

_AT_ONCE = 4  # children; each holds the model


def deployment(
    path: str | os.PathLike[str], params: DeploymentParams, command: str = "inspect"
) -> DeploymentReport:
    """Asks or estimates each runtime of `params.runs_on`, and tries what would make more of them take the model.

    Raises:
        UsageError: an unknown runtime, one that takes no files of this format, or sizes that do not fit the model.
        InputError: the model cannot be read.
        MissingDependencyError: a runtime that was named can be neither asked nor estimated.
    """
    artifact = Artifact.open(path)
    runtimes = chosen(params.runs_on, artifact.format)
    if params.shape and artifact.format != "onnx":
        raise UsageError(f"--shape is about open sizes of .onnx files, {path} is none", fix="leave it out")
    for runtime in runtimes:
        if not runtime.is_here and not runtime.has_table:  # of `all` there are none
            raise runtime.missing()
    with (
        tempfile.TemporaryDirectory(prefix="onnxport-") as scratch,
        ThreadPoolExecutor(max_workers=_AT_ONCE) as pool,
        Workshop() as workshop,  # closed before the pool waits: after a Ctrl-C nobody is to be asked any more
    ):
        subject = Subject.of(artifact, params.shape, Path(scratch), workshop)
        answers = _answers(subject, runtimes, params, pool)
        placements = Mender(artifact, subject, params, pool).mended(answers)
    return DeploymentReport(
        command=command,
        model=str(artifact.path),
        format=artifact.format,
        strict=params.error_on_fallback,
        placements=tuple(placements),
        notes=subject.notes,
    )


def _answers(
    subject: Subject, runtimes: Sequence[Runtime], params: DeploymentParams, pool: ThreadPoolExecutor
) -> dict[Runtime, Estimate]:
    """In the order of `runtimes`; those that are asked answer while the others are estimated."""
    explicit = ALL not in params.runs_on
    providers = subject.workshop.providers() if any(each.provider for each in runtimes) else frozenset()
    here = [each for each in runtimes if each.is_here and (not each.provider or each.provider in providers)]
    begun = {each: pool.submit(asked, subject, each, params.timeout) for each in here}
    found = {each: _answer(subject, each, begun.get(each), explicit) for each in runtimes}
    return {runtime: answer for runtime, answer in found.items() if answer is not None}


def _answer(
    subject: Subject, runtime: Runtime, begun: Future[Placement | None] | None, explicit: bool
) -> Estimate | None:
    answer = begun.result() if begun is not None else None
    if answer is not None:
        return Estimate(answer, runtime.mends)
    if runtime.has_table and subject.model is not None:
        return estimated(subject, runtime)
    if explicit:
        raise runtime.missing()
    return None
