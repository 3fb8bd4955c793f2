"""The ONNX node behind a stage's failure: what `onnxport debug` does, on the candidate that the judge just rejected.

The search is a process of its own with a limited time. A pipeline has many artefacts, and this is about one that nobody
gets: whatever the search meets, the verdict stands as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxport.core.child_process import Child, ChildBug
from onnxport.core.errors import OnnxportError, printable
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.jobs import Step
from onnxport.pipelines.step_times import Clock, Progress
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Diagnosis

PATIENCE = 120.0  # seconds
# Accuracy is the verdict's to measure; the search asks which node is wrong.
_NO_DEMANDS: Mapping[str, object] = {"budget": {}, "metric": (), "report_tensors": None}


def diagnosed(
    report: RunReport,
    origin: Artifact,
    steps: Sequence[Step],
    validation: ValidateParams,
    progress: Progress | None = None,
) -> RunReport:
    """`report` on a candidate that was kept, with the node at fault if it is not equivalent, and without its path.

    Args:
        origin: what it was proven against.
        steps: those that led to it, with what those before the last made.
    """
    rejected = report.artifacts[0]
    if report.passed or rejected.path is None:
        return report
    candidate = _candidate(rejected, rejected.path)
    update: dict[str, object] = {}
    if rejected.report.verdict == "not equivalent":
        params = DebugParams.model_construct(**{**dict(validation), **_NO_DEMANDS})
        with Clock(progress).phase("diagnose"):
            update["diagnosis"] = _searched(_reference(rejected, origin, steps), candidate, params)
    # Where it lies is no place of the user's.
    gone = rejected.model_copy(
        update={"path": None, "report": rejected.report.model_copy(update=update), "companions": ()}
    )
    return report.model_copy(update={"artifacts": (gone, *report.artifacts[1:])})


def _candidate(rejected: ArtifactRecord, path: str) -> Artifact:
    opened = Artifact.open(path)
    return Artifact(opened.path, opened.format)


def _reference(rejected: ArtifactRecord, origin: Artifact, steps: Sequence[Step]) -> Artifact:
    """What the failed question was about: what a step lowered, of which the rest has to compute the same; else the
    origin (references.py)."""
    lowered = [step.made for step in steps[:-1] if step.stage.lowers and step.made is not None]
    asked = rejected.report.asked
    return lowered[-1] if lowered and asked is not None and asked.question == "fidelity" else origin


def _searched(reference: Artifact, candidate: Artifact, params: DebugParams) -> Diagnosis:
    try:
        with Child(f"{__name__}:Search", purpose="the search for the node", timeout=PATIENCE) as child:
            found: Diagnosis = child.call("diagnosis", reference, candidate, params)
        return found
    except (OnnxportError, OSError, ChildBug) as error:
        why = printable(str(error).strip().splitlines()[-1])
        return Diagnosis(summary=f"which node it is could not be found out: {why}", node=None)


class Search:
    """The child's side."""

    def diagnosis(self, reference: Artifact, candidate: Artifact, params: DebugParams) -> Diagnosis | None:
        """See comparing.debug."""
        from onnxport.pipelines.validation_run import debug

        return debug(reference, candidate, params).artifacts[0].report.diagnosis
