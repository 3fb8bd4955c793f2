"""What a tracker is told: an entry for each artefact of a run, each cell of a pipeline, each row of a bench."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from onnxport.bench.report import BenchReport, Row
from onnxport.reports.pipeline_report import PipelineReport
from onnxport.reports.run_report import ArtifactRecord, Latency, RunReport


@dataclass(frozen=True)
class Entry:
    """One run of a tracker.

    Attributes:
        metrics: finite numbers.
        passed: whether the artefact is proven, or measured, and within all limits.
    """

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    passed: bool


def entries_of(subject: str, report: Any) -> list[Entry]:
    """Return the entries of a report of `subject`, one of SUBJECTS."""
    return list(SUBJECTS[subject](report))


def _of_run(report: RunReport) -> Iterator[Entry]:
    for artifact in report.artifacts:
        verdict = {"verdict": artifact.report.verdict, "reason": artifact.report.reason}
        about = {"command": " ".join((report.command, *report.arguments)), "source": report.source.path}
        about |= {"source_sha256": report.source.digest, "sha256": artifact.digest}
        metrics = _artifact(artifact) | {"seconds": report.seconds}
        yield _entry(artifact.label, about | verdict, metrics, artifact.report.passed)


def _of_pipeline(report: PipelineReport) -> Iterator[Entry]:
    runs = {node.name: node.run for node in report.nodes if node.run is not None}
    for cell in report.cells:
        about = {"pipeline": report.file, "model": cell.model, "target": cell.target, **cell.values}
        verdict = {"verdict": cell.verdict, "reason": cell.reason}
        metrics: dict[str, float | None] = {}
        if cell.node in runs:
            metrics |= _artifact(runs[cell.node].artifacts[0])
        metrics |= _latency(cell.latency) | {f"limit/{each.name}": each.limit for each in cell.limits}
        yield _entry(cell.name, about | verdict, metrics, cell.path is not None)


def _of_bench(report: BenchReport) -> Iterator[Entry]:
    for row in report.rows:
        settings = {name: str(value) for name, value in row.settings if value is not None}
        about = {"artifact": row.artifact, "status": row.status, "ran_on": row.ran_on, "why": row.why}
        about |= {"processor": report.machine.processor} | settings
        metrics = _row(row)
        yield _entry(row.artifact, about, metrics, row.status == "measured" and not row.over)


def _entry(name: str, params: Mapping[str, str], metrics: Mapping[str, float | None], passed: bool) -> Entry:
    finite = {
        key: float(value) for key, value in metrics.items() if value is not None and math.isfinite(value)
    }
    return Entry(
        PurePath(name).as_posix(), {key: value for key, value in params.items() if value}, finite, passed
    )


def _artifact(artifact: ArtifactRecord) -> dict[str, float | None]:
    """Return the figures of an artefact; those of an output have its name behind a slash."""
    found: dict[str, float | None] = {"size_bytes": artifact.size, "size_ratio": artifact.ratio}
    for judgement in artifact.report.judgements:
        for output in judgement.outputs:
            found |= {f"{each.metric}/{output.name}": each.value for each in output.figures}
        found |= {each.metric: each.value for each in judgement.metrics}
    return found | _latency(artifact.worth.latency if artifact.worth is not None else None)


def _latency(latency: Latency | None) -> dict[str, float | None]:
    if latency is None:
        return {}
    found: dict[str, float | None] = {"latency_ms": latency.after_ms, "speedup": latency.speedup}
    if latency.start is not None:
        found |= {"load_ms": latency.start.load_ms, "first_ms": latency.start.first_ms}
        found |= {"memory_bytes": latency.start.memory}
    return found


def _row(row: Row) -> dict[str, float | None]:
    latency, memory, accuracy = row.latency, row.memory, row.accuracy
    return {
        "size_bytes": row.size,
        "load_ms": row.load_ms,
        "first_ms": row.first_ms,
        "second_ms": row.second_ms,
        "latency_ms": None if latency is None else latency.median,
        "latency_p99_ms": None if latency is None else latency.p99,
        "memory_bytes": None if memory is None else memory.added,
        "sqnr_db": None if accuracy is None else accuracy.sqnr,
    }


SUBJECTS: Mapping[str, Callable[[Any], Iterator[Entry]]] = {
    "run": _of_run,
    "pipeline": _of_pipeline,
    "bench": _of_bench,
}
