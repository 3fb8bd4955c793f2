"""What all forms show of where a model runs: the answer in a sentence, each runtime's part, kinds of fallback."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from onnxport.deployment.report import DeploymentReport, Extent, Placement
from onnxport.reports import wording
from onnxport.reports.wording import text

_EXTENTS: tuple[Extent, ...] = ("all", "part", "none", "unknown")


@dataclass(frozen=True)
class Kind:
    """Nodes of one operator that fall back for one reason."""

    op: str
    why: str
    nodes: tuple[str, ...]

    def named(self, most: int = 3) -> str:
        """Their names: "/a, /b and 12 more"."""
        shown, rest = wording.cut(self.nodes, most)
        return ", ".join(map(text, shown)) + (f" and {rest:,} more" if rest else "")


def kinds(placement: Placement) -> list[Kind]:
    """The most frequent first."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in placement.fallbacks:
        found.setdefault((each.op, each.why), []).append(each.node)
    made = [Kind(op, why, tuple(nodes)) for (op, why), nodes in found.items()]
    return sorted(made, key=lambda kind: -len(kind.nodes))


def summary(report: DeploymentReport) -> str:
    """ "model.onnx: 3 of 5 runtimes take all of it"."""
    name = text(PurePath(report.model).name)
    whole = sum(each.extent == "all" for each in report.placements)
    if len(report.placements) == 1:
        only = report.placements[0]
        return f"{name}: {text(only.title)} takes {taken(only)}"
    if not whole:
        return f"{name}: none of {wording.count(len(report.placements), 'runtime')} takes all of it"
    take = "takes" if whole == 1 else "take"
    return f"{name}: {whole} of {wording.count(len(report.placements), 'runtime')} {take} all of it"


def totals(report: DeploymentReport) -> str:
    """ "3 all, 1 part, 1 none; 2 asked here, 3 estimated"."""
    extents = Counter(each.extent for each in report.placements)
    asked = sum(each.how == "asked" for each in report.placements)
    ways = ((asked, "asked here"), (len(report.placements) - asked, "estimated from tables"))
    return "; ".join(
        (
            ", ".join(f"{extents[each]} {each}" for each in _EXTENTS if extents[each]),
            ", ".join(f"{count} {said}" for count, said in ways if count),
        )
    )


def verdict(report: DeploymentReport) -> Extent:
    """What is so of the model: of those runtimes that take less than others, the most that is lost."""
    found = {each.extent for each in report.placements}
    return next((each for each in ("unknown", "none", "part") if each in found), "all")


def taken(placement: Placement) -> str:
    """ "all 214 nodes", "120 of 214 nodes in 3 groups", "nothing", "unknown"."""
    if placement.extent == "unknown":
        return "unknown"
    groups = "" if placement.partitions is None else f" in {wording.count(placement.partitions, 'group')}"
    if placement.extent == "all":
        several = groups if (placement.partitions or 0) > 1 else ""
        return f"all {wording.count(placement.nodes, 'node')}{several}" if placement.nodes else "all"
    if placement.extent == "none":
        keep = "keeps" if len(placement.fallbacks) == 1 else "keep"
        out = f": {wording.count(len(placement.fallbacks), 'node')} {keep} it out"
        return f"nothing{out if placement.fallbacks else ''}"
    return f"{placement.taken:,} of {wording.count(placement.nodes, 'node')}{groups}"


def origin(placement: Placement) -> str:
    """ "asked, 1.31.1", or "estimated, 1.23, source of 2024-10-01"."""
    dated = f"source of {placement.dated}" if placement.dated else ""
    return ", ".join(text(part) for part in (placement.how, placement.version, dated) if part)


def operators(report: DeploymentReport) -> list[tuple[str, list[int]]]:
    """Operators that some runtime leaves out, with how many nodes of it each does; the most frequent first."""
    counts = [Counter(each.op for each in placement.fallbacks) for placement in report.placements]
    names = Counter[str]()
    for each in counts:
        names.update(each)
    return [(name, [each[name] for each in counts]) for name, _ in names.most_common()]


def fails(report: DeploymentReport, placement: Placement) -> bool:
    """Whether the command fails for it."""
    return report.strict and placement.extent != "all"


def told(placement: Placement) -> Iterator[str]:
    """What there is to say of one: what keeps it out, kinds of fallback, what would mend it, notes."""
    if placement.why:
        yield text(placement.why)
    for kind in kinds(placement):
        yield f"{wording.count(len(kind.nodes), 'node')} {text(kind.op)}: {text(kind.why)} ({kind.named()})"
    if placement.change is not None:
        yield mended(placement)
    yield from map(text, placement.notes)


def mended(placement: Placement) -> str:
    """ "static shapes end 12 of these: onnxport optimize ..."; empty where nothing would."""
    change = placement.change
    if change is None:
        return ""
    command = f": {text(change.command)}" if change.command else ""
    return f"{text(change.said)} (ends {change.mends:,} of {len(placement.fallbacks):,}){command}"


def command(report: DeploymentReport) -> str:
    """The command line that asks the same."""
    strict: Sequence[str] = ("--error-on-fallback",) if report.strict else ()
    runtimes = ",".join(each.runtime for each in report.placements)
    return shlex.join(("onnxport", "inspect", report.model, "--runs-on", runtimes, *strict))
