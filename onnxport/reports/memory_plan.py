"""The terminal form of a memory plan: `onnxport inspect --plan`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxport.core.errors import printable
from onnxport.inspection.memory.report import MemoryPlan
from onnxport.reports.phrases import align, human_size, name_list

_SHOWN = 10


def plan_lines(plan: MemoryPlan, *, detailed: bool = False) -> Iterator[str]:
    """Yield the figures of the run, then its nodes: those with most memory and work, or all in their order."""
    ends = "in the arena" if plan.holds_inputs else "the caller's"
    yield f"  one run in {plan.runtime}, by its rules; without scratch memory of kernels"
    yield f"  peak        {human_size(plan.peak)} of activations, at {printable(plan.peak_node)!r}"
    yield f"  arena       {human_size(plan.arena)} for {len(plan.buffers)} buffers"
    yield f"  inputs      {human_size(plan.inputs)}, {ends}; outputs {human_size(plan.outputs)}"
    yield f"  weights     {human_size(plan.weights)}"
    yield f"  work        {_millions(plan.macs)} multiply-accumulates"
    if plan.unsized:
        yield f"  unknown     sizes of {len(plan.unsized)} values, which count as nothing: {_names(plan.unsized)}"
    chosen = range(len(plan.nodes))
    if not detailed:
        by_memory = sorted(chosen, key=lambda place: -plan.nodes[place].live)[: _SHOWN // 2]
        by_work = sorted(chosen, key=lambda place: -plan.nodes[place].macs)[: _SHOWN // 2]
        chosen = sorted({*by_memory, *by_work})  # type: ignore[assignment]
    rows = [["node", "operator", "live", "reads", "writes", "weights", "MACs"]]
    for place in chosen:
        node = plan.nodes[place]
        sizes = [human_size(size) for size in (node.live, node.read, node.written, node.weights)]
        rows.append([printable(node.name), printable(node.operator), *sizes, _millions(node.macs)])
    yield ""
    yield from (f"  {line}" for line in align(rows, left=2))
    if not detailed and len(plan.nodes) > len(rows) - 1:
        yield f"  the nodes with most memory and most work of {len(plan.nodes)}; --verbose shows all"


def _names(names: tuple[str, ...]) -> str:
    return printable(name_list(names))


def _millions(macs: int) -> str:
    return f"{macs / 1e6:,.1f} M" if macs >= 1e5 else f"{macs:,}"
