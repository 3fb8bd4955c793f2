"""The report of a pipeline's run as data: `--json`, `--report` and the result of Python calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN, PipelineFailedError, worst
from onnxport.core.tabular import Documented
from onnxport.reports.run_report import Latency, Record, RunReport

PIPELINE_SCHEMA_VERSION: Literal[1] = 1
Status = Literal["made", "cached", "failed", "not run"]


class PlaceRecord(Record):
    """A line, from 1, of the pipeline's file or of one that it includes."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class FailureRecord(Record):
    """An error, as the command line shows it."""

    kind: str
    message: str
    exit_code: int


class NodeRecord(Record):
    """One stage on one model.

    Attributes:
        name: unique in the pipeline.
        stage: kind of step.
        after: the node whose product is its input; empty where the model is its input.
        status: "failed" where the proof failed or an error ended it, "not run" where an earlier node failed.
        why: reason why it was made again, or was not run; empty where it came from the cache.
        key: its key in the cache; empty where unknown.
        run: the report of the run that made it, an earlier one where it came from the cache.
        at: line of the file that asks for it; None where unknown.
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
        """The stage, the verdict, and the ONNX node at fault where one was found; empty where it passed."""
        if self.failure is not None:
            return f"{self.stage} ({self.name}) failed: {self.failure.message}"
        if self.run is None or self.run.passed:
            return self.why if self.status == "not run" else ""
        report = self.run.artifacts[0].report
        verdict = f"{self.stage} ({self.name}) is {report.verdict}: {report.reason}"
        return f"{verdict}; {report.diagnosis.summary}" if report.diagnosis is not None else verdict


class LimitRecord(Record):
    """A user's limit and its result.

    Attributes:
        name: its key: "max_size" and "max_memory" in bytes, "max_latency" and "max_load" in milliseconds;
            "max_size_ratio" and "max_latency_ratio" as shares of the source's.
        value: None where it could not be measured; then the limit is not kept.
        said: figure and limit in words.
        where: FILE:LINE, KEY that sets it.
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


class CellRecord(Record):
    """One artefact of the matrix.

    Attributes:
        values: of the matrix' keys.
        node: name of the node that makes it.
        path: of the artefact; None if it was not delivered.
        verdict: the judge's, or worse where a limit is not kept; "failed" where an error ended the node, "not run"
            where an earlier node failed.
        reason: sentence why it did not pass; empty where it did.
        latency: compared with the model's, where a limit needed it; where the precision was lowered, the node's run
            has it.
        at: line of the file with its target; None where unknown.
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


class PipelineReport(Documented, Record):
    """One run of a pipeline.

    Attributes:
        notes: sentences about the run that change no result.
        frozen: whether only artefacts with the lock's bytes were delivered (`--frozen`).
    """

    schema_version: Literal[1] = PIPELINE_SCHEMA_VERSION
    command: str = "run"
    arguments: tuple[str, ...] = ()
    file: str
    nodes: tuple[NodeRecord, ...]
    cells: tuple[CellRecord, ...]
    seconds: float
    environment: dict[str, str]
    notes: tuple[str, ...] = ()
    frozen: bool = False
    exit_code: int

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Show a line, not every figure."""
        yield from (("file", self.file), ("exit_code", self.exit_code))
        yield "verdicts", {each.name: each.verdict for each in self.cells}

    @property
    def passed(self) -> bool:
        return self.exit_code == PROVEN

    def check(self) -> None:
        """Raise PipelineFailedError, with this report, if something failed."""
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
    """Return the worst exit code of all that failed, by the order of errors.SEVERITY."""
    failed = (node.failure.exit_code for node in nodes if node.failure is not None)
    rejected = (NOT_EQUIVALENT for node in nodes if node.run is not None and not node.run.passed)
    return worst((*failed, *rejected, *(cell.exit_code for cell in cells)))
