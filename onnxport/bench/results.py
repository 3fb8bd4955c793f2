"""Results that were measured elsewhere, as a baseline: what a farm of devices or a tool of another runtime printed.

A row needs an artefact and a time: `p50_ms`, or all `times_ms`. A setting that it leaves out fits any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from onnxport.bench.report import BenchReport, Machine, Memory, Row, Settings, Spread
from onnxport.bench.statistics import digits, median, median_interval, quantile
from onnxport.core.errors import printable
from onnxport.formats.artifact import FORMATS, Format
from onnxport.runtimes import registry

KEY = "results_version"  # which tells the document from a report of `onnxport bench`
_Ms = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Result(_Form):
    """One artefact under one set of settings; times in milliseconds of one warm run, unless they say other.

    Attributes:
        runtime: as in `--runtimes`; the default runtime of the artefact's format unless given.
        times_ms: of every run; else `p50_ms`, with `low_ms` and `high_ms` as an interval of the true median.
        peak_bytes: memory that runtime and model take.
    """

    artifact: str
    runtime: str = ""
    provider: str | None = None
    threads: _Count | None = None
    level: str | None = None
    batch: _Count | None = None
    times_ms: Annotated[tuple[_Ms, ...], Field(max_length=1_000_000)] = ()
    p50_ms: _Ms | None = None
    low_ms: _Ms | None = None
    high_ms: _Ms | None = None
    load_ms: _Ms | None = None
    peak_bytes: _Count | None = None

    @model_validator(mode="after")
    def _has_a_time(self) -> Self:
        if (self.p50_ms is None) == (not self.times_ms):
            raise ValueError("give p50_ms, or times_ms")
        low, high = self.low_ms or self.p50_ms or 1, self.high_ms or self.p50_ms or 1
        if self.p50_ms is not None and not low <= self.p50_ms <= high:
            raise ValueError("p50_ms lies outside of low_ms and high_ms")
        return self


class Results(_Form):
    """The document.

    Attributes:
        machine: the processor, or the product, that was measured on.
    """

    results_version: Literal[1] = 1
    machine: str = ""
    rows: Annotated[tuple[Result, ...], Field(min_length=1)]


class ForeignReport(BenchReport):
    """The rows of a Results document; their settings may leave out some."""


def foreign_report(document: Mapping[str, Any]) -> ForeignReport:
    """Return the document as a report (pydantic's ValidationError)."""
    found = Results.model_validate_json(json.dumps(document))
    rows = tuple(map(_row, found.rows))
    return ForeignReport(
        command="",
        created="",
        machine=Machine(processor=found.machine, instruction_sets="", cores=0, memory=0, system="", load=0),
        versions={},
        runs=0,
        warmup=0,
        inputs="",
        rows=rows,
    )


def machine_differences(then: Machine, now: Machine) -> Iterator[str]:
    """Yield how the machine that the document names differs from the one that is measured on."""
    named = then.processor.casefold()
    if named and named != now.processor.casefold() and named not in now.device.casefold().split(", "):
        yield printable(f"it was {then.processor}, this is {now.device or now.processor}")


def fits(given: Settings, settings: Settings) -> bool:
    """Return whether settings agree in all that `given` has."""
    return all(value is None or value == getattr(settings, name) for name, value in given)


def _row(result: Result) -> Row:
    format_: Format = FORMATS.get(PurePath(result.artifact).suffix.lower(), "onnx")
    peak = result.peak_bytes
    return Row(
        artifact=result.artifact,
        format=format_,
        status="measured",
        settings=Settings(
            runtime=result.runtime or registry.FIRST[format_].name,
            provider=result.provider,
            threads=result.threads,
            level=result.level,
            batch=result.batch,
        ),
        load_ms=result.load_ms,
        latency=_spread(result),
        memory=None if peak is None else Memory(bare=0, imported=0, loaded=None, peak=peak),
    )


def _spread(result: Result) -> Spread:
    times = sorted(result.times_ms)
    if not times:
        assert result.p50_ms is not None
        low, high = result.low_ms or result.p50_ms, result.high_ms or result.p50_ms
        return Spread(
            median=result.p50_ms, least=low, low=low, high=high, confidence=0, runs=0, rounds=(result.p50_ms,)
        )
    interval = median_interval(times)
    return Spread(
        median=digits(median(times)),
        p90=quantile(times, 0.9),
        p99=quantile(times, 0.99),
        least=times[0],
        low=interval.low,
        high=interval.high,
        confidence=digits(interval.confidence),
        runs=len(times),
        rounds=(digits(median(times)),),
    )
