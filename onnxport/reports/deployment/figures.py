"""The content that all forms of a deployment show: a summary, the nodes that each runtime takes, kinds of fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from onnxport.deployment.report import DeploymentReport, Extent, Placement, Run
from onnxport.reports import phrases
from onnxport.reports.phrases import text

_EXTENTS: tuple[Extent, ...] = ("all", "part", "none", "unknown")


@dataclass(frozen=True)
class Kind:
    """Nodes of one operator that fall back for one reason."""

    op: str
    why: str
    nodes: tuple[str, ...]

    def names(self, most: int = 3) -> str:
        """Return the nodes' names: "/a, /b and 12 more"."""
        return phrases.name_list(self.nodes, most)


def kinds(placement: Placement) -> list[Kind]:
    """Return the kinds of fallback, the most frequent first."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in placement.fallbacks:
        found.setdefault((each.op, each.why), []).append(each.node)
    grouped = [Kind(op, why, tuple(nodes)) for (op, why), nodes in found.items()]
    return sorted(grouped, key=lambda kind: -len(kind.nodes))


def summary(report: DeploymentReport) -> str:
    """Return "model.onnx: 3 of 5 runtimes take all of it"."""
    name = text(PurePath(report.model).name)
    complete = sum(each.extent == "all" for each in report.placements)
    if len(report.placements) == 1:
        only = report.placements[0]
        return f"{name}: {text(only.title)} takes {extent_text(only)}"
    if not complete:
        return f"{name}: none of {phrases.count(len(report.placements), 'runtime')} takes all of it"
    take = "takes" if complete == 1 else "take"
    return f"{name}: {complete} of {phrases.count(len(report.placements), 'runtime')} {take} all of it"


def totals(report: DeploymentReport) -> str:
    """Return "3 all, 1 part, 1 none; 2 asked here, 3 estimated from tables"."""
    extents = Counter(each.extent for each in report.placements)
    asked = sum(each.how == "asked" for each in report.placements)
    ways = ((asked, "asked here"), (len(report.placements) - asked, "estimated from tables"))
    counts = ", ".join(f"{extents[each]} {each}" for each in _EXTENTS if extents[each])
    return f"{counts}; {', '.join(f'{count} {way}' for count, way in ways if count)}"


def verdict(report: DeploymentReport) -> Extent:
    """Return the extent of the runtime that takes least."""
    found = {each.extent for each in report.placements}
    return next((each for each in ("unknown", "none", "part") if each in found), "all")


def extent_text(placement: Placement) -> str:
    """Return "all 214 nodes", "120 of 214 nodes in 3 groups", "none", "unknown"."""
    if placement.extent == "unknown":
        return "unknown"
    groups = "" if placement.partitions is None else f" in {phrases.count(placement.partitions, 'group')}"
    if placement.extent == "all":
        several = groups if (placement.partitions or 0) > 1 else ""
        return f"all {phrases.count(placement.nodes, 'node')}{several}" if placement.nodes else "all"
    if placement.extent == "none":
        verb = "is" if len(placement.fallbacks) == 1 else "are"
        why = f": {phrases.count(len(placement.fallbacks), 'node')} {verb} not supported"
        return f"none{why if placement.fallbacks else ''}"
    return f"{placement.taken:,} of {phrases.count(placement.nodes, 'node')}{groups}"


def run(each: Run) -> str:
    """Return "accelerator: 12 nodes, '/conv' to '/add'"."""
    side = "accelerator" if each.accelerated else "CPU"
    names = repr(each.first) if each.nodes == 1 else f"{each.first!r} to {each.last!r}"
    return f"{side}: {phrases.count(each.nodes, 'node')}, {text(names)}"


def origin(placement: Placement) -> str:
    """Return "asked, 1.31.1", or "estimated, 1.23, source of 2024-10-01"."""
    dated = f"source of {placement.dated}" if placement.dated else ""
    return ", ".join(text(part) for part in (placement.how, placement.version, dated) if part)


def operators(report: DeploymentReport) -> list[tuple[str, list[int]]]:
    """Return operators that runtimes leave out, the most frequent first, with the number of nodes for each runtime."""
    counts = [Counter(each.op for each in placement.fallbacks) for placement in report.placements]
    names = Counter[str]()
    for each in counts:
        names.update(each)
    return [(name, [each[name] for each in counts]) for name, _ in names.most_common()]


def fails(report: DeploymentReport, placement: Placement) -> bool:
    """Return whether the command fails for it."""
    return report.strict and placement.extent != "all"


def details(placement: Placement) -> Iterator[str]:
    """Yield the reason why a runtime refuses the model, kinds of fallback, the change that helps, notes."""
    if placement.why:
        yield text(placement.why)
    for kind in kinds(placement):
        yield f"{phrases.count(len(kind.nodes), 'node')} {text(kind.op)}: {text(kind.why)} ({kind.names()})"
    if placement.change is not None:
        yield change(placement)
    yield from map(text, placement.notes)


def change(placement: Placement) -> str:
    """Return the change that helps: "static shapes (ends 12 of 14): onnxport optimize ..."; empty where none does."""
    found = placement.change
    if found is None:
        return ""
    command = f": {text(found.command)}" if found.command else ""
    return f"{text(found.said)} ({solved(placement)}){command}"


def solved(placement: Placement) -> str:
    """Return how much of what does not run the change solves; a runtime may refuse a model without naming nodes."""
    found = placement.change
    if found is None:
        return ""
    if not placement.fallbacks:
        return "would let it load"
    return f"would solve {found.mends:,} of {len(placement.fallbacks):,}"


def arguments(report: DeploymentReport) -> tuple[str, ...]:
    """Return the command and its arguments that make the same report."""
    strict = ("--error-on-fallback",) if report.strict else ()
    runtimes = ",".join(each.runtime for each in report.placements)
    return "inspect", report.model, "--runs-on", runtimes, *strict


def command(report: DeploymentReport) -> str:
    """Return the command line that makes the same report."""
    name, *others = arguments(report)
    return phrases.command_line(name, others)
