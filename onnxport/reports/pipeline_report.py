"""What a run of a pipeline did, as data: its `--json`, its reports and what Python callers get."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN, PipelineFailedError, worst
from onnxport.reports.run_report import Latency, RunReport

PIPELINE_SCHEMA_VERSION: Literal[1] = 1
Status = Literal["made", "cached", "failed", "not run"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class _Line(Protocol):
    """A line of a file."""

    @property
    def path(self) -> Path: ...

    @property
    def number(self) -> int: ...


class PlaceRecord(_Record):
    """A line, from 1, of the pipeline's file or of one that it includes."""

    file: str
    line: int

    @classmethod
    def of(cls, line: _Line | None) -> PlaceRecord | None:
        return None if line is None else cls(file=str(line.path), line=line.number)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class FailureRecord(_Record):
    """An error, as the command line would have shown it."""

    kind: str
    message: str
    exit_code: int


class NodeRecord(_Record):
    """One stage on one model.

    Attributes:
        name: unique in the pipeline.
        stage: what kind of step.
        after: the node whose product it takes; empty where it takes the model.
        status: "failed" where the proof failed or an error ended it, "not run" where one before it failed.
        why: why it was made anew, or why not at all; empty where it came out of the cache.
        key: what it is kept under; empty where that never became known.
        run: what its run reported; the earlier run's where it came out of the cache.
        at: where the file asks for it; None where that is not known.
    """

    name: str
    model: str
    stage: str
    after: str
    status: Status
    why: str = ""
    key: str = ""
    seconds: float = 0.0
    run: RunReport | None = None
    failure: FailureRecord | None = None
    at: PlaceRecord | None = None

    @property
    def broken(self) -> str:
        """The stage, what the judge said, and the ONNX node at fault where one was found; empty where it passed."""
        if self.failure is not None:
            return f"{self.stage} ({self.name}) failed: {self.failure.message}"
        if self.run is None or self.run.passed:
            return self.why if self.status == "not run" else ""
        report = self.run.artifacts[0].report
        said = f"{self.stage} ({self.name}) is {report.verdict}: {report.reason}"
        return f"{said}; {report.diagnosis.summary}" if report.diagnosis is not None else said


class LimitRecord(_Record):
    """A limit of the user's and what came of it.

    Attributes:
        name: its key, "max_size" in bytes, "max_size_ratio" and "max_latency_ratio" as shares of the source's.
        value: None where it could not be measured, which keeps no limit.
        said: figure and limit in words.
        where: FILE:LINE, KEY that asks for it.
    """

    name: str
    limit: float
    value: float | None
    kept: bool
    said: str = ""
    where: str = ""

    @property
    def is_over(self) -> bool:
        return self.value is not None and not self.kept


class CellRecord(_Record):
    """One artefact of the matrix.

    Attributes:
        values: the matrix' keys and what they are here.
        node: the name of the node whose product it is.
        path: where it is; None if nothing was left there.
        verdict: the judge's, made worse by a limit that is not kept; "failed" where an error ended the node, "not run"
            where one before failed.
        reason: why it did not pass, in a sentence; empty where it did.
        latency: what it takes beside the model, where a limit had that measured; where its precision was lowered, its
            node's run has it.
        at: where the file has its target; None where that is not known.
    """

    name: str
    model: str
    target: str
    values: dict[str, str]
    node: str
    path: str | None
    verdict: str
    reason: str = ""
    limits: tuple[LimitRecord, ...] = ()
    latency: Latency | None = None
    exit_code: int
    at: PlaceRecord | None = None


class PipelineReport(_Record):
    """One run of a pipeline."""

    schema_version: Literal[1] = PIPELINE_SCHEMA_VERSION
    command: str = "run"
    arguments: tuple[str, ...] = ()
    file: str
    nodes: tuple[NodeRecord, ...]
    cells: tuple[CellRecord, ...]
    seconds: float
    environment: dict[str, str]
    exit_code: int

    @property
    def passed(self) -> bool:
        return self.exit_code == PROVEN

    def check(self) -> None:
        """Raises PipelineFailedError, with this report, if something failed."""
        if self.passed:
            return
        missing = [cell for cell in self.cells if cell.path is None]
        raise PipelineFailedError(
            f"{len(missing)} of {len(self.cells)} artefacts of {self.file} were not made"
            if missing
            else f"the run of {self.file} failed",
            why="; ".join(f"{cell.name}: {cell.reason}" for cell in missing),
            exit_code=self.exit_code,
            report=self,
        )


def exit_code_of(nodes: tuple[NodeRecord, ...], cells: tuple[CellRecord, ...]) -> int:
    """By the order of errors.SEVERITY, over all that failed."""
    failed = (node.failure.exit_code for node in nodes if node.failure is not None)
    rejected = (NOT_EQUIVALENT for node in nodes if node.run is not None and not node.run.passed)
    return worst((*failed, *rejected, *(cell.exit_code for cell in cells)))
