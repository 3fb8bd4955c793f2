"""The report of a run as data: `--json`, `--report` and the result of Python calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN, NotProvenError, worst
from onnxport.core.lean_records import LeanRecord
from onnxport.core.tabular import Documented
from onnxport.validate.report import Report

# Of the JSON document: changes when a field is removed or changes its meaning, not when one is added.
SCHEMA_VERSION: Literal[1] = 1


class Record(LeanRecord, BaseModel):
    """A part of a report."""

    # Non-finite numbers become strings: JSON has none, and null would not read back.
    # Deferred: a run builds those that it has, inner ones as parts of others.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class FileRecord(Record):
    """A file and its size in bytes."""

    path: str
    size: int


class SourceRecord(Record):
    """The model that a run started from; size and digest include its external data."""

    path: str
    format: str
    size: int
    digest: str


class Timing(Record):
    """Seconds of one step; `parallel` if it ran beside the others and adds nothing to their sum."""

    step: str
    seconds: float
    parallel: bool = False


class StartRecord(Record):
    """The start of an artefact in a process of its own.

    Attributes:
        load_ms: from the file to a model that can run, without imports.
        first_ms: the first run, which may still prepare kernels; with `load_ms` it is the cold start.
        second_ms: the second run; None where the first one took all the time that there was.
        memory: bytes that runtime and model add to a bare process, at the peak.
    """

    load_ms: float
    first_ms: float
    second_ms: float | None = None
    memory: int


class Latency(Record):
    """Times of a run of the source and the artefact, measured in turns on this CPU.

    Attributes:
        runtime: that ran both.
        before_ms, after_ms: milliseconds of the source and of the artefact, medians over the rounds.
        speedup: the median of the rounds' ratios of the two; above 1 the artefact is faster.
        low, high, confidence: an interval, and the probability that it holds the true median: 0 of a single round.
        start: of the artefact.
    """

    runtime: str
    before_ms: float
    after_ms: float
    speedup: float
    low: float
    high: float
    confidence: float
    rounds: int
    start: StartRecord | None = None


class Finding(Record):
    """Why an artefact of lower precision is hardly faster, and the setting that would help."""

    reason: str
    setting: str


class Worth(Record):
    """The speed of a lower precision on this CPU, and why it is not faster.

    Attributes:
        latency: None where it was not measured.
        why_not: reason why it was not measured; empty where it was.
        findings: empty where it is faster.
    """

    latency: Latency | None = None
    why_not: str = ""
    findings: tuple[Finding, ...] = ()


class ArtifactRecord(Record):
    """One artefact, or a rejected candidate for one.

    Attributes:
        path: of the artefact, or of the rejected candidate that --keep-rejected keeps; None if nothing was kept.
        target: the stage that made it; empty for a file that was only validated.
        size: bytes on disk, its companion files included.
        ratio: size over the source's size; None where that says nothing, as for a factory without weights.
        report: the verdict and its figures.
        notes: sentences for the user.
        facts: figures of the stages ("transposes": 1).
        function: name of the function in a package of several models; empty where there is one.
        worth: speed of a precision that the run lowered; None where it lowered none, or timing was off.
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
        """The artefact's name on a page."""
        path = self.path or self.report.candidate.path
        return f"{path}, function {self.function}" if self.function else path


class ConsultedRecord(Record):
    """User code that took part, and the files that it read; see onnxport.core.user_code."""

    modules: dict[str, str] = {}
    files: dict[str, str] = {}
    libraries: dict[str, str] = {}


class RunReport(Documented, Record):
    """One run of a command.

    Attributes:
        arguments: of the command line, after the command's name; empty for a run from Python.
        consulted: None where no user code took part, or it was not recorded.
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

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Show a line, not every figure."""
        yield from (("command", self.command), ("exit_code", self.exit_code))
        yield "verdicts", {each.label: each.report.verdict for each in self.artifacts}

    @property
    def passed(self) -> bool:
        """Return whether every artefact passed, so that the command exits with 0."""
        return self.exit_code == PROVEN

    def check(self) -> None:
        """Raise NotProvenError, with this report, for the first artefact that did not pass."""
        for artifact in self.artifacts:
            if not artifact.report.passed:
                why = artifact.report.reason
                fix = name_samples_option(_fix(artifact), self.command)
                raise NotProvenError(rejection(artifact.report), why=why, fix=fix, report=self)


# Commands whose own inputs have another option: `extract` names values of the model by --inputs.
_SAMPLES_OPTION = {"extract": "--samples-from DIR"}


def name_samples_option(text: str, command: str) -> str:
    """Return a message with the option that gives samples to `command` in place of `--inputs DIR`."""
    return text.replace("--inputs DIR", _SAMPLES_OPTION.get(command, "--inputs DIR"))


# The same in a program or notebook.
_PYTHON = {"--inputs DIR": 'inputs="DIR"', "--samples-from DIR": 'samples_from="DIR"'}


def name_samples_keyword(text: str) -> str:
    """Return a text with the keyword that gives samples in Python in place of the option."""
    for option, keyword in _PYTHON.items():
        text = text.replace(option, keyword)
    return text


def rejection(report: Report) -> str:
    """Return what is wrong with a rejected candidate, as a clause."""
    name, source = report.candidate.path, report.reference.path
    if report.verdict == "not equivalent":
        return f"{name} is not equivalent to {source}"
    if report.verdict == "over budget":
        return f"{name} loses more accuracy against {source} than the budget allows"
    return f"whether {name} is equivalent to {source} is {report.verdict}"


# Frameworks that compute in float64; their exports are float32 by default.
_FLOAT64_FRAMEWORKS = frozenset({"sklearn", "lightgbm"})


def remedies(report: Report) -> list[str]:
    """Return what the user can do about a report that did not pass, in clauses that name options."""
    generated = all(each.source == "generated" for each in report.fed)
    found = []
    if report.verdict == "inconclusive":
        inputs = "inputs of your own with --inputs DIR" if generated else "inputs that make it vary"
        found.append(f"give {inputs}, or accept it unproven with --accept-inconclusive")
    if (
        report.verdict == "not equivalent"
        and report.reference.format in _FLOAT64_FRAMEWORKS
        and report.candidate.precision != "float64"
    ):
        found.append("the model computes in float64: export it so with --float64")
    if report.verdict == "over budget" and generated and report.fed:
        found.append("this is on generated inputs only; give your own with --inputs DIR")
    return found


def _fix(artifact: ArtifactRecord) -> str:
    dropped = artifact.path is None
    keeping = dropped and artifact.report.verdict != "inconclusive"
    kept = "nothing was kept (--keep-rejected keeps rejected artefacts)" if keeping else "nothing was kept"
    suspicion = suspect_samples(artifact.facts)
    return "; ".join(
        (*([suspicion] if suspicion else ()), *([kept] if dropped else ()), *remedies(artifact.report))
    )


def suspect_samples(facts: Mapping[str, Any]) -> str:
    """Return the clause on samples unlike those of training, for the error of a run that failed; empty for none."""
    findings = facts.get("lint", {}).get("unlike", ())
    return f"the samples may be the cause: {'; '.join(findings)}" if findings else ""


def exit_code_of(artifacts: tuple[ArtifactRecord, ...]) -> int:
    """Return the exit code of a run of these artefacts."""
    return worst(PROVEN if artifact.report.passed else NOT_EQUIVALENT for artifact in artifacts)
