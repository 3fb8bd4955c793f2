"""A deployment as lines of text: a row per runtime, below it its fallbacks and the change that helps."""

from __future__ import annotations

from collections.abc import Iterator

from onnxport.core.errors import printable
from onnxport.deployment.report import DeploymentReport, Fallback, Placement
from onnxport.reports.deployment import figures
from onnxport.reports.deployment.figures import extent_text, origin
from onnxport.reports.phrases import align, count

_SHOWN = 4  # kinds of fallback below a row


def lines(report: DeploymentReport, *, detailed: bool = False) -> str:
    """Return the report; `detailed` adds every fallback and note."""
    heads = align([(each.runtime, extent_text(each), origin(each)) for each in report.placements], left=3)
    shown = [f"{report.model}   {report.format}"]
    for placement, head in zip(report.placements, heads, strict=True):
        shown += (f"  {head}", *(f"      {line}" for line in _below(placement, detailed)))
    shown += (f"note: {note}" for note in report.notes)
    return "\n".join(printable(line) for line in shown)


def _below(placement: Placement, detailed: bool) -> Iterator[str]:
    if placement.why:
        yield placement.why
    by_operator: dict[str, list[Fallback]] = {}
    for each in placement.fallbacks:
        by_operator.setdefault(each.op, []).append(each)
    kinds = sorted(by_operator.values(), key=len, reverse=True)  # the most frequent first
    for first, *others in kinds if detailed else kinds[:_SHOWN]:
        if detailed:
            yield from (f"{each.op} {each.node!r}: {each.why}" for each in (first, *others))
        else:
            more = f" and {count(len(others), 'node')} more" if others else ""
            yield f"{first.op} {first.node!r}{more}: {first.why}"
    if not detailed and len(kinds) > _SHOWN:
        rest = kinds[_SHOWN:]
        operators = ", ".join(f"{each[0].op} {len(each)}" for each in rest)
        yield f"and {count(sum(map(len, rest)), 'node')} more: {operators}"
    if placement.copies is not None and placement.fallbacks:
        yield f"it would run in {len(placement.runs)} turns with the CPU, {count(placement.copies, 'value')} copied"
    if detailed:
        yield from (f"  {figures.run(each)}" for each in placement.runs)
    if change := placement.change:
        command = f": {change.command}" if change.command else ""
        what = f"would solve {change.mends} of these" if placement.fallbacks else "would let it load"
        yield f"{change.said} {what}{command}"
    if detailed:
        yield from placement.notes
        yield from [placement.source] if placement.source else []
