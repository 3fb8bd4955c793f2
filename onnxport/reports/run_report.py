"""What a run did, as data: the whole of `--json`, `--report` and of what Python callers get."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN, NotProvenError, worst
from onnxport.validate.report import Report

# Of the JSON document: counts up when a field goes or changes its meaning, not when one is added.
SCHEMA_VERSION: Literal[1] = 1


class _Record(BaseModel):
    # Strings for non-finite numbers: JSON has none, and null would not read back.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class FileRecord(_Record):
    """A file and the size it has in bytes."""

    path: str
    size: int


class SourceRecord(_Record):
    """The model that a run started from, its external data included in size and digest."""

    path: str
    format: str
    size: int
    digest: str


class Timing(_Record):
    """Seconds of one step; `parallel` when it ran beside the others and adds nothing to their sum."""

    step: str
    seconds: float
    parallel: bool = False


class Latency(_Record):
    """How long one run took in rounds of the source and the artefact, side by side on this CPU.

    Attributes:
        runtime: who ran both.
        before_ms, after_ms: milliseconds of the source and of the artefact, medians over the rounds.
        speedup: the median of the rounds' ratios of the two; above 1 the artefact is faster.
        low, high, confidence: an interval, and the probability that it holds the true median: 0 of a single round.
    """

    runtime: str
    before_ms: float
    after_ms: float
    speedup: float
    low: float
    high: float
    confidence: float
    rounds: int


class Finding(_Record):
    """Why an artefact of lower precision is hardly faster, and the setting that would help."""

    reason: str
    setting: str


class Worth(_Record):
    """What a lower precision is worth on this CPU, beside its size and what it lost.

    Attributes:
        latency: None where it was not measured.
        why_not: why it was not measured; empty where it was.
        findings: empty where it is faster.
    """

    latency: Latency | None = None
    why_not: str = ""
    findings: tuple[Finding, ...] = ()


class ArtifactRecord(_Record):
    """One artefact, or what would have become one.

    Attributes:
        path: where it is, or the rejected candidate kept by --keep-rejected; None if nothing was kept.
        target: the stage that made it; empty for a file that was only validated.
        size: bytes on disk, its companion files included.
        ratio: size over the source's size; None where that tells nothing, as of a factory without weights.
        report: the verdict and its figures.
        notes: what the user should know about it.
        facts: figures that the stages gave ("transposes": 1).
        function: the function that this is about, of a package made of several models; empty where there is one.
        worth: whether a precision that the run lowered pays; None where it lowered none, or nobody wanted to know.
    """

    path: str | None
    target: str
    format: str
    size: int
    ratio: float | None
    digest: str
    companions: tuple[FileRecord, ...]
    report: Report
    timings: tuple[Timing, ...]
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    function: str = ""
    worth: Worth | None = None

    @property
    def label(self) -> str:
        """What to call it on a page."""
        path = self.path or self.report.candidate.path
        return f"{path}, function {self.function}" if self.function else path


class ConsultedRecord(_Record):
    """Code of the user's own that took part, and what it read; see onnxport.core.user_code."""

    modules: dict[str, str] = {}
    files: dict[str, str] = {}
    libraries: dict[str, str] = {}


class RunReport(_Record):
    """One run of a command.

    Attributes:
        arguments: what followed the command's name on the command line; empty for a run from Python.
        consulted: None where no code of the user's took part, or nobody asked.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    command: str
    arguments: tuple[str, ...] = ()
    source: SourceRecord
    artifacts: tuple[ArtifactRecord, ...]
    seconds: float
    environment: dict[str, str]
    exit_code: int
    consulted: ConsultedRecord | None = None

    @property
    def passed(self) -> bool:
        """Whether every artefact may leave with exit 0."""
        return self.exit_code == PROVEN

    def check(self) -> None:
        """Raises NotProvenError, with this report, for the first artefact that did not pass."""
        for artifact in self.artifacts:
            if not artifact.report.passed:
                raise self._refusal(artifact)

    def _refusal(self, artifact: ArtifactRecord) -> NotProvenError:
        report = artifact.report
        return NotProvenError(accusation(report), why=report.reason, fix=_way_out(artifact), report=self)


def accusation(report: Report) -> str:
    """What is wrong with a candidate that was not let out, as a clause."""
    name, source = report.candidate.path, report.reference.path
    if report.verdict == "not equivalent":
        return f"{name} is not equivalent to {source}"
    if report.verdict == "over budget":
        return f"{name} costs more accuracy against {source} than it may"
    return f"whether {name} is equivalent to {source} is {report.verdict}"


# Frameworks that compute in float64, of which an export is float32 unless asked.
_OF_FLOAT64 = frozenset({"sklearn", "lightgbm"})


def ways_out(report: Report) -> list[str]:
    """What a user may do about a report that did not pass, in clauses that name options."""
    generated = all(each.source == "generated" for each in report.fed)
    found = []
    if report.verdict == "inconclusive":
        inputs = "inputs of your own with --inputs DIR" if generated else "inputs that make it vary"
        found.append(f"give {inputs}, or take it unproven with --accept-inconclusive")
    if (
        report.verdict == "not equivalent"
        and report.reference.format in _OF_FLOAT64
        and report.candidate.precision != "float64"
    ):
        found.append("the model computes in float64: --float64 exports it so")
    if report.verdict == "over budget" and generated and report.fed:
        found.append("this is on generated inputs only; give your own with --inputs DIR")
    return found


def _way_out(artifact: ArtifactRecord) -> str:
    dropped = artifact.path is None
    keeping = dropped and artifact.report.verdict != "inconclusive"
    kept = "nothing was kept, --keep-rejected keeps what failed" if keeping else "nothing was kept"
    return "; ".join((*([kept] if dropped else ()), *ways_out(artifact.report)))


def exit_code_of(artifacts: tuple[ArtifactRecord, ...]) -> int:
    return worst(PROVEN if artifact.report.passed else NOT_EQUIVALENT for artifact in artifacts)
