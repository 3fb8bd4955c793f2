"""Judges of a run: opened beside its other steps, asked for the verdict, or waived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxport.core.errors import OnnxportError
from onnxport.formats.artifact import Artifact, Referent
from onnxport.pipelines.runner.clock import Clock
from onnxport.pipelines.stages import Product

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.pipelines.runner.judges import Judges
    from onnxport.runtimes.base import ReferenceRuntime
    from onnxport.runtimes.isolation import IsolatedRuntime
    from onnxport.validate.judge import Judge
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.progress import Tell
    from onnxport.validate.report import Report


def open_judge(
    reference: Referent,
    params: ValidateParams,
    runtime: ReferenceRuntime,
    graph: Model | None,
    candidate: Artifact | None,
    *,
    tell: Tell | None = None,
) -> Judge:
    """Open the judge of a run, see Judge; its libraries are imported here, when they are needed."""
    from onnxport.validate.judge import Judge

    return Judge(reference, params, runtime, graph, candidate, tell=tell)


def start_reference(reference: Artifact, params: ValidateParams) -> IsolatedRuntime:
    """Start the process that runs the reference; before anything else, so that its imports cost no time."""
    from onnxport.validate.sessions import isolated

    return isolated(reference, params, "reference")


def verdict(judge: Judge | Judges | None, reference: Referent, product: Product, clock: Clock) -> Report:
    """Return the report on a product; None for `judge` waives the validation."""
    if product.unrunnable:
        return waive(reference, product.artifact, product.unrunnable)
    if judge is None:
        return waive(reference, product.artifact)
    with clock.phase("validate"):
        report = judge.verdict(product.artifact)
    clock.aside("reference", judge.seconds)
    return report


def waive(reference: Referent, candidate: Artifact, why: str = "validation was switched off") -> Report:
    """Return the report on a candidate that the user wants unproven, or that no runtime here can run."""
    from onnxport.validate.report import Report, Side

    def side(artifact: Referent) -> Side:
        return Side(
            path=str(artifact.path),
            format=artifact.format,
            runtime="not run",
            size=artifact.size,
            digest=artifact.digest(),
        )

    return Report(reference=side(reference), candidate=side(candidate), verdict="unproven", reason=why)


@contextmanager
def blame_the_model(reference: Artifact, judge: Judge | Judges | None) -> Iterator[None]:
    """Raise the reference's error in place of a bug of ours that a broken model caused.

    ONNX's checker accepts many models whose nodes contradict their weights or bodies; ONNX Runtime finds them.
    """
    try:
        yield
    except (OnnxportError, OSError, MemoryError):
        raise
    except Exception as bug:
        refusal = _refusal(reference) if judge is None else judge.refusal()
        if refusal is not None:
            raise refusal from bug
        raise


def _refusal(reference: Artifact) -> OnnxportError | None:
    """Return Judge.refusal for a run without validation."""
    from onnxport.validate.params import ValidateParams

    params = ValidateParams()
    with (
        start_reference(reference, params) as runtime,
        open_judge(reference, params, runtime, None, reference) as judge,
    ):
        return judge.refusal()
