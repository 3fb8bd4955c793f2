"""What an artefact may cost beside accuracy: the limits that a pipeline.yaml sets, held against what was measured.

A limit is over where the figure is; a latency is the median of its rounds, and the sentence says its interval. One that
could not be measured is not kept: nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxport.core.errors import printable
from onnxport.pipelines.config.pipeline import Limits
from onnxport.reports.pipeline_report import LimitRecord
from onnxport.reports.run_report import ArtifactRecord, Latency, Worth
from onnxport.reports.wording import human_size


def check_limits(limits: Limits, made: ArtifactRecord, timed: Worth | None = None) -> tuple[LimitRecord, ...]:
    """What came of each limit that is set.

    Args:
        timed: what the artefact takes beside its source (latency.py); needed where latency has a limit.
    """
    return tuple(_records(limits, made, timed))


def verdict_of(records: Sequence[LimitRecord], judged: str) -> str:
    """The verdict on an artefact that the judge calls `judged`: a limit can only make it worse."""
    if all(each.kept for each in records):
        return judged
    return "over budget" if any(each.is_over for each in records) else "inconclusive"


def reason_of(records: Sequence[LimitRecord]) -> str:
    """Why they are not all kept, with the lines that asked for it; empty where they are."""
    return "; ".join(f"{each.where}: {each.said}" for each in records if not each.kept)


def _records(limits: Limits, made: ArtifactRecord, timed: Worth | None) -> Iterator[LimitRecord]:
    if limits.size is not None:
        said = f"{_size(made.size)} where {_size(limits.size)} is the most"
        yield _record(limits, "max_size", limits.size, made.size, said)
    if limits.size_ratio is not None:
        ratio = made.ratio if made.ratio is not None else None
        said = "the source has no size to compare with"
        if ratio is not None:
            said = f"{ratio:.4g} of the source's size where {limits.size_ratio:g} is the most"
        yield _record(limits, "max_size_ratio", limits.size_ratio, ratio, said)
    if limits.latency_ratio is not None:
        latency = timed.latency if timed is not None else None
        if latency is None:
            why = timed.why_not if timed is not None and timed.why_not else "nobody timed it"
            said = f"it could not be timed: {printable(why)}"
            yield _record(limits, "max_latency_ratio", limits.latency_ratio, None, said)
        else:
            said = _latency_text(latency, limits.latency_ratio)
            yield _record(limits, "max_latency_ratio", limits.latency_ratio, 1 / latency.speedup, said)


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
        doubt = " (the interval holds the limit: another run may say otherwise)"
    return (
        f"{1 / latency.speedup:.3g} of the source's time ({spread}; {latency.after_ms:g} ms beside "
        f"{latency.before_ms:g} ms, {latency.runtime}) where {limit:g} is the most{doubt}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:,.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _size(size: int) -> str:
    return f"{human_size(size)} ({size:,} bytes)" if size >= 1000 else human_size(size)
