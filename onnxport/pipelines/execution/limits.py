"""Checks artefacts against the limits of a pipeline.yaml on size, time and memory.

A latency is the median of its rounds; the message gives its interval. A limit without a figure counts as not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.core.errors import printable
from onnxport.pipelines.config.pipeline import Limits
from onnxport.reports.phrases import human_size
from onnxport.reports.pipeline_report import LimitRecord
from onnxport.reports.run_report import ArtifactRecord, Latency, Worth


def check_limits(limits: Limits, made: ArtifactRecord, timed: Worth | None = None) -> tuple[LimitRecord, ...]:
    """Return a record of each limit that is set; `timed` is the latency for a limit on that."""
    return tuple(_records(limits, made, timed))


def verdict_of(records: Sequence[LimitRecord], judged: str) -> str:
    """Return the verdict on an artefact with the judge's verdict `judged`: limits can only make it worse."""
    if all(each.kept for each in records):
        return judged
    return "over budget" if any(each.is_over for each in records) else "inconclusive"


def reason_of(records: Sequence[LimitRecord]) -> str:
    """Return which limits are not kept, with their lines in the file; empty if all are kept."""
    return "; ".join(f"{each.where}: {each.said}" for each in records if not each.kept)


def _records(limits: Limits, made: ArtifactRecord, timed: Worth | None) -> Iterator[LimitRecord]:
    if limits.size is not None:
        said = f"{_size(made.size)}; the limit is {_size(limits.size)}"
        yield _record(limits, "max_size", limits.size, made.size, said)
    if limits.size_ratio is not None:
        said = "the source has no size to compare with"
        if made.ratio is not None:
            said = f"{made.ratio:.4g} of the source's size; the limit is {limits.size_ratio:g}"
        yield _record(limits, "max_size_ratio", limits.size_ratio, made.ratio, said)
    latency = timed.latency if timed is not None else None
    why = timed.why_not if timed is not None and timed.why_not else "it was not timed"
    untimed = f"it could not be timed: {printable(why)}"
    found: float | None
    start = latency.start if latency is not None else None
    if limits.load is not None:
        said, found = untimed, None
        if start is not None:
            said = f"loading takes {start.load_ms:g} ms; the limit is {limits.load:g} ms"
            found = start.load_ms
        yield _record(limits, "max_load", limits.load, found, said)
    if limits.memory is not None:
        said, found = untimed, None
        if start is not None:
            said = f"runtime and model take {_size(start.memory)}; the limit is {_size(limits.memory)}"
            found = start.memory
        yield _record(limits, "max_memory", limits.memory, found, said)
    if limits.latency is not None:
        said, found = untimed, None
        if latency is not None:
            said = f"{latency.after_ms:g} ms in {latency.runtime}; the limit is {limits.latency:g} ms"
            found = latency.after_ms
        yield _record(limits, "max_latency", limits.latency, found, said)
    if limits.latency_ratio is not None:
        said, found = untimed, None
        if latency is not None:
            said, found = _latency_text(latency, limits.latency_ratio), 1 / latency.speedup
        yield _record(limits, "max_latency_ratio", limits.latency_ratio, found, said)


def _record(limits: Limits, name: str, limit: float, value: float | None, said: str) -> LimitRecord:
    kept = value is not None and value <= limit
    if value is not None and not kept:
        said = f"{said}, {_percent(value / limit - 1)} too much"
    return LimitRecord(
        name=name, limit=limit, value=value, kept=kept, said=said, where=limits.places.get(name, name)
    )


def _latency_text(latency: Latency, limit: float) -> str:
    low, high = 1 / latency.high, 1 / latency.low
    spread = f"{low:.3g} to {high:.3g}, {latency.rounds} rounds" if latency.confidence else "one round"
    doubt = ""
    if latency.confidence and low <= limit <= high:
        doubt = " (the limit lies in the interval: another run may decide otherwise)"
    return (
        f"{1 / latency.speedup:.3g} times the source's time ({spread}; {latency.after_ms:g} ms, source "
        f"{latency.before_ms:g} ms, {latency.runtime}); the limit is {limit:g}{doubt}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:,.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _size(size: int) -> str:
    return f"{human_size(size)} ({size:,} bytes)" if size >= 1000 else human_size(size)
