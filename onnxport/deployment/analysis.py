"""A deployment report: every requested runtime, probed if it is installed and estimated otherwise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from onnxport.core.errors import UsageError
from onnxport.core.scratch import ScratchFolder
from onnxport.deployment.estimation import Estimate
from onnxport.deployment.model_variants import ModelVariants
from onnxport.deployment.params import ALL, DeploymentParams
from onnxport.deployment.placement import ProbedModel, estimate_runtime, probe
from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.deployment.runtimes import Runtime, select_runtimes
from onnxport.deployment.suggestions import Suggestions
from onnxport.formats.artifact import Artifact

_AT_ONCE = 4  # child processes; each loads the model


def analyze_deployment(path: str | os.PathLike[str], params: DeploymentParams) -> DeploymentReport:
    """Probe or estimate each runtime of `params.runs_on`, and try changes that may make them take more.

    Raises:
        UsageError: an unknown runtime, one that takes no files of this format, or sizes that do not fit the model.
        InputError: the model cannot be read.
        MissingDependencyError: a named runtime can be neither probed nor estimated.
    """
    artifact = Artifact.open(path)
    runtimes = select_runtimes(params.runs_on, artifact.format)
    if params.shape and artifact.format != "onnx":
        raise UsageError(f"--shape sets open sizes of .onnx files, and {path} is not one", fix="leave it out")
    for runtime in runtimes:
        if not runtime.can_probe and not runtime.has_table:  # `all` selects none of these
            raise runtime.missing()
    with (
        ScratchFolder() as scratch,
        ThreadPoolExecutor(max_workers=_AT_ONCE) as pool,
        ModelVariants(Path(scratch)) as variants,  # closed before the pool waits: Ctrl-C ends all probes
    ):
        subject = ProbedModel.prepare(artifact, params.shape, Path(scratch), variants)
        answers = _evaluate_all(subject, runtimes, params, pool)
        placements = Suggestions(artifact, subject, params, pool).add_to(answers)
    return DeploymentReport(
        command="inspect",
        model=str(artifact.path),
        format=artifact.format,
        strict=params.error_on_fallback,
        placements=tuple(placements),
        notes=subject.notes,
    )


def _evaluate_all(
    subject: ProbedModel, runtimes: Sequence[Runtime], params: DeploymentParams, pool: ThreadPoolExecutor
) -> dict[Runtime, Estimate]:
    """Return the answers in the order of `runtimes`; probes run while the others are estimated."""
    explicit = ALL not in params.runs_on
    providers = subject.variants.providers() if any(each.provider for each in runtimes) else frozenset()
    here = [each for each in runtimes if each.can_probe and (not each.provider or each.provider in providers)]
    begun = {each: pool.submit(probe, subject, each, params.timeout) for each in here}
    found = {each: _evaluate(subject, each, begun.get(each), explicit) for each in runtimes}
    return {runtime: answer for runtime, answer in found.items() if answer is not None}


def _evaluate(
    subject: ProbedModel, runtime: Runtime, begun: Future[Placement | None] | None, explicit: bool
) -> Estimate | None:
    answer = begun.result() if begun is not None else None
    if answer is not None:
        return Estimate(answer, runtime.remedies)
    if runtime.has_table and subject.model is not None:
        return estimate_runtime(subject, runtime)
    if explicit:
        raise runtime.missing()
    return None
