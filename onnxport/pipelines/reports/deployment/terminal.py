"""Where a model runs, for the terminal: a row per runtime, below it what falls back and what would mend that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnxport.deployment.record import DeploymentReport, Fallback, Placement
from onnxport.errors import printable

_SHOWN = 4  # kinds of fallback below a row, and nodes of one kind, unless all are wanted


def lines(report: DeploymentReport, *, detailed: bool = False) -> str:
    """The whole report; every fallback and note where `detailed`."""
    rows = [(each.runtime, taken(each), origin(each)) for each in report.placements]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    said = [f"{report.model}   {report.format}"]
    for placement, (name, what, source) in zip(report.placements, rows, strict=True):
        said.append(f"  {name:<{widths[0]}}  {what:<{widths[1]}}  {source}")
        said += (f"      {line}" for line in _below(placement, detailed))
    said += report.notes
    return "\n".join(printable(line) for line in said)


def taken(placement: Placement) -> str:
    """ "all 214 nodes", "120 of 214 nodes in 3 groups", "nothing", "unknown"."""
    if placement.extent == "unknown":
        return "unknown"
    if placement.extent == "all":
        groups = f" in {placement.partitions} groups" if (placement.partitions or 0) > 1 else ""
        return f"all {placement.nodes} nodes{groups}" if placement.nodes else "all"
    if placement.extent == "none":
        return f"nothing: {len(placement.fallbacks)} nodes keep it out" if placement.fallbacks else "nothing"
    groups = "" if placement.partitions is None else f" in {_counted(placement.partitions, 'group')}"
    return f"{placement.taken} of {placement.nodes} nodes{groups}"


def origin(placement: Placement) -> str:
    """ "asked, 1.31.1", or "estimated, 1.23, source of 2024-10-01"."""
    parts = [placement.how, placement.version, f"source of {placement.dated}" if placement.dated else ""]
    return ", ".join(part for part in parts if part)


def _below(placement: Placement, detailed: bool) -> Iterator[str]:
    if placement.why:
        yield placement.why
    kinds = _by_operator(placement.fallbacks)
    for fallbacks in kinds if detailed else kinds[:_SHOWN]:
        yield from _kind(fallbacks, detailed)
    if not detailed and len(kinds) > _SHOWN:
        rest = kinds[_SHOWN:]
        operators = ", ".join(f"{each[0].op} {len(each)}" for each in rest)
        yield f"and {_counted(sum(map(len, rest)), 'node')} more: {operators}"
    if change := placement.change:
        command = f": {change.command}" if change.command else ""
        yield f"{change.said} ends {change.mends} of these{command}"
    if detailed:
        yield from placement.notes
        yield from [placement.source] if placement.source else []


def _kind(fallbacks: Sequence[Fallback], detailed: bool) -> Iterator[str]:
    first, *others = fallbacks
    if detailed:
        yield from (f"{each.op} {each.node!r}: {each.why}" for each in fallbacks)
    else:
        more = f" and {_counted(len(others), 'node')} more" if others else ""
        yield f"{first.op} {first.node!r}{more}: {first.why}"


def _by_operator(fallbacks: Iterable[Fallback]) -> list[list[Fallback]]:
    """The most frequent operator first."""
    found: dict[str, list[Fallback]] = {}
    for each in fallbacks:
        found.setdefault(each.op, []).append(each)
    return sorted(found.values(), key=len, reverse=True)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
