"""Find the ONNX node behind a stage's failure, as `onnxport debug` does, in the candidate that the judge rejected.

The search is a process of its own with a time limit. Whatever it meets, the verdict stands: a pipeline has many
artefacts, and this one is rejected anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxport.core.child_process import Child, ChildBug
from onnxport.core.errors import OnnxportError, printable
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.jobs import Step
from onnxport.reports.run_report import ArtifactRecord, RunReport
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import NO_DEMANDS, ValidateParams
from onnxport.validate.report import Diagnosis

PATIENCE = 120.0  # seconds


def add_diagnosis(
    report: RunReport,
    origin: Artifact,
    steps: Sequence[Step],
    validation: ValidateParams,
    progress: Progress | None = None,
) -> RunReport:
    """Add the node at fault to the report on a rejected candidate that is not equivalent; remove its path.

    `steps` are all of the job, with the products of those before the last.
    """
    rejected = report.artifacts[0]
    if report.passed or rejected.path is None:
        return report
    opened = Artifact.open(rejected.path)
    candidate = Artifact(opened.path, opened.format)
    update: dict[str, object] = {}
    if rejected.report.verdict == "not equivalent":
        params = DebugParams.model_construct(**{**dict(validation), **NO_DEMANDS})
        with Clock(progress).phase("diagnose"):
            update["diagnosis"] = _search(_reference(rejected, origin, steps), candidate, params)
    # Its file is temporary.
    removed = rejected.model_copy(
        update={"path": None, "report": rejected.report.model_copy(update=update), "companions": ()}
    )
    return report.model_copy(update={"artifacts": (removed, *report.artifacts[1:])})


def _reference(rejected: ArtifactRecord, origin: Artifact, steps: Sequence[Step]) -> Artifact:
    """Return the reference of the failed criterion: a quantized model for fidelity, if there is one, else the origin
    (judges.py)."""
    lowered = [step.made for step in steps[:-1] if step.stage.lowers and step.made is not None]
    failed = rejected.report.asked
    return lowered[-1] if lowered and failed is not None and failed.question == "fidelity" else origin


def _search(reference: Artifact, candidate: Artifact, params: DebugParams) -> Diagnosis:
    try:
        with Child(f"{__name__}:Search", purpose="the search for the node", timeout=PATIENCE) as child:
            found: Diagnosis = child.call("diagnosis", reference, candidate, params)
        return found
    except (OnnxportError, OSError, ChildBug) as error:
        why = printable(str(error).strip().splitlines()[-1])
        return Diagnosis(summary=f"the search for the node at fault failed: {why}", node=None)


class Search:
    """The child process."""

    def diagnosis(self, reference: Artifact, candidate: Artifact, params: DebugParams) -> Diagnosis | None:
        """See validation_run.debug."""
        from onnxport.pipelines.runner.validation import debug

        return debug(reference, candidate, params).artifacts[0].report.diagnosis
