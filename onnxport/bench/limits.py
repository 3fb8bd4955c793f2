"""The user's limits on every row of a bench: the time of a run, load time, memory and size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from onnxport.bench.params import BenchParams
from onnxport.bench.report import Row
from onnxport.core.durations import milliseconds_of
from onnxport.core.memory import bytes_of


class _Limit(NamedTuple):
    what: str
    figure: Callable[[Row], float | None]
    parse: Callable[[str], float]
    unit: str
    scale: float


_LIMITS = {
    "max_latency": _Limit(
        "p50", lambda row: None if row.latency is None else row.latency.median, milliseconds_of, "ms", 1
    ),
    "max_load": _Limit("loading", lambda row: row.load_ms, milliseconds_of, "ms", 1),
    "max_memory": _Limit(
        "runtime and model",
        lambda row: None if row.memory is None else row.memory.added,
        bytes_of,
        "MB",
        1e-6,
    ),
    "max_size": _Limit("size", lambda row: row.size, bytes_of, "MB", 1e-6),
}


def check_limits(rows: Sequence[Row], params: BenchParams) -> tuple[Row, ...]:
    """Return the rows, each with the limits that it exceeds; a row without figures has a reason of its own."""
    return tuple(row.model_copy(update={"over": tuple(_excesses(row, params))}) for row in rows)


def _excesses(row: Row, params: BenchParams) -> Iterator[str]:
    for name, limit in _LIMITS.items():
        text, figure = getattr(params, name), limit.figure(row)
        option = f"--{name.replace('_', '-')}"
        if text is not None and figure is None and row.status == "measured":  # by a device's tool
            yield f"{limit.what} was not measured; {option} allows {text}"
        if text is not None and figure is not None and figure > limit.parse(text):
            yield f"{limit.what} {figure * limit.scale:.4g} {limit.unit}; {option} allows {text}"
