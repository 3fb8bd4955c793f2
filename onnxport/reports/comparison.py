"""The terminal form of `onnxport diff`: what differs between two models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxport.core.errors import printable
from onnxport.inspection.comparison import Change, Comparison, Detail, NodeName
from onnxport.reports.phrases import count

if TYPE_CHECKING:
    from onnxport.reports.run_report import RunReport

_MOST = 20  # nodes that are listed
_MARKS = {"changed": "~", "removed": "-", "added": "+"}


def comparison_lines(found: Comparison, *, all_of_it: bool = False) -> str:
    """Return the differences in the first model's order; `all_of_it` lists every one."""
    lines = [f"{found.first} -> {found.second}", *(f"  note: {note}" for note in found.notes)]
    lines += [f"  {_detail(detail)}" for detail in found.model]
    kinds = Counter[str](change.kind for change in found.changes)
    counts = [f"{kinds[kind]} {kind}" for kind in _MARKS if kinds[kind]]
    if found.became:
        lines += _became(found, all_of_it=all_of_it)
    else:
        lines.append("  " + ", ".join([count(found.equal + kinds["stored"], "equal node"), *counts]))
    told = [change for change in found.changes if change.kind in _MARKS]
    shown = told if all_of_it else told[:_MOST]
    lines += [line for change in shown for line in _change(change)]
    if left := Counter(f"{_MARKS[each.kind]} {each.node.op}" for each in told[len(shown) :]):
        more = ", ".join(f"{number} {what}" for what, number in left.most_common())
        lines.append(f"  ... and {more}; all with --verbose")
    lines += _stored(found)
    if not found.became and found.is_same:
        lines.append("  no node, attribute or weight differs")
    return "\n".join(printable(line) for line in lines)


def _became(found: Comparison, *, all_of_it: bool) -> Iterator[str]:
    """Yield which nodes a converted form computes by which operator."""
    nodes = sum(len(each.first) for each in found.became)
    yield f"  {count(nodes, 'node')} in {count(len(found.became), 'operator')} that compute the same"
    shown = found.became if all_of_it else found.became[:_MOST]
    for each in shown:
        yield f"  = {', '.join(map(_name, each.first))} -> {each.second}"
    if left := len(found.became) - len(shown):
        yield f"  ... and {left} more; all with --verbose"


def _stored(found: Comparison) -> Iterator[str]:
    """Yield how often a constant or a value is kept in other bits."""
    details = [detail for change in found.changes for detail in change.details if detail.kind == "storage"]
    # A value that several nodes read is one.
    each = {detail.what: (detail.before, detail.after) for detail in details}
    if each:
        yield "  the same numbers in other bits, each within a step of its grid or 4 ULP:"
    for (before, after), number in Counter(each.values()).most_common():
        yield f"    {number} {f'{before} -> {after}' if before != after else f'{before}, rounded otherwise'}"


def _change(change: Change) -> Iterator[str]:
    yield f"  {_MARKS[change.kind]} {_name(change.node)}"
    yield from (f"      {_detail(detail)}" for detail in change.details if detail.kind != "storage")


def _name(node: NodeName) -> str:
    return f"{node.op} {node.name or node.value!r}" if node.name else f"{node.op} that gives {node.value!r}"


def _detail(detail: Detail) -> str:
    if not detail.before and not detail.after:
        return detail.what
    if not detail.before or not detail.after:
        return f"{detail.what} {'added: ' + detail.after if detail.after else 'gone: ' + detail.before}"
    return f"{detail.what}: {detail.before} -> {detail.after}"


def document(found: Comparison, run: RunReport | None) -> str:
    """Return the differences as JSON: of the files below `graph`, of what they compute below `run` (or null)."""
    content = {
        "graph": found.model_dump(mode="json"),
        "run": None if run is None else json.loads(run.model_dump_json()),
    }
    return json.dumps(content, indent=2)
