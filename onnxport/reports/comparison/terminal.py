"""The terminal form of `onnxport diff`: what differs between two models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onnxport.core.errors import printable
from onnxport.inspection.comparison import Change, Comparison, Detail, NodeName
from onnxport.reports.phrases import count

_MOST = 20  # nodes that are listed
_MARKS = {"changed": "~", "removed": "-", "added": "+"}


def comparison_lines(found: Comparison, *, all_of_it: bool = False) -> str:
    """Return the differences in the first model's order; `all_of_it` lists every one."""
    lines = [f"{found.first} -> {found.second}", *(f"  note: {note}" for note in found.notes)]
    lines += [f"  {detail(each)}" for each in found.model]
    kinds = Counter[str](change.kind for change in found.changes)
    counts = [f"{kinds[kind]} {kind}" for kind in _MARKS if kinds[kind]]
    if not (found.is_converted and found.became):
        lines.append("  " + ", ".join([count(found.equal + kinds["stored"], "equal node"), *counts]))
    if found.became:
        lines += _became(found, all_of_it=all_of_it)
    told = [change for change in found.changes if change.kind in _MARKS]
    shown = told if all_of_it else told[:_MOST]
    lines += [line for change in shown for line in _change(change)]
    if left := Counter(f"{_MARKS[each.kind]} {each.node.op}" for each in told[len(shown) :]):
        more = ", ".join(f"{number} {what}" for what, number in left.most_common())
        lines.append(f"  ... and {more}; all with --verbose")
    lines += stored(found)
    if not found.became and found.is_same:
        lines.append("  no node, attribute or weight differs")
    return "\n".join(printable(line) for line in lines)


def _became(found: Comparison, *, all_of_it: bool) -> Iterator[str]:
    """Yield which nodes a converted form computes by which operator."""
    nodes = sum(len(each.first) for each in found.became)
    yield f"  {count(nodes, 'node')} in {count(len(found.became), 'operator')} that compute the same"
    shown = found.became if all_of_it else found.became[:_MOST]
    for each in shown:
        yield f"  = {', '.join(map(name, each.first))} -> {each.second}"
    if left := len(found.became) - len(shown):
        yield f"  ... and {left} more; all with --verbose"


def stored(found: Comparison) -> Iterator[str]:
    """Yield how often a constant or a value is kept in other bits."""
    details = [each for change in found.changes for each in change.details if each.kind == "storage"]
    # A value that several nodes read is one.
    kept = {each.what: (each.before, each.after) for each in details}
    if kept:
        yield "  the same numbers in other bits, each within a step of its grid or 4 ULP:"
    for (before, after), number in Counter(kept.values()).most_common():
        yield f"    {number} {f'{before} -> {after}' if before != after else f'{before}, rounded otherwise'}"


def _change(change: Change) -> Iterator[str]:
    yield f"  {_MARKS[change.kind]} {name(change.node)}"
    yield from (f"      {detail(each)}" for each in change.details if each.kind != "storage")


def name(node: NodeName) -> str:
    return f"{node.op} {node.name or node.value!r}" if node.name else f"{node.op} that gives {node.value!r}"


def detail(found: Detail) -> str:
    if not found.before and not found.after:
        return found.what
    if not found.before or not found.after:
        return f"{found.what} {'added: ' + found.after if found.after else 'gone: ' + found.before}"
    return f"{found.what}: {found.before} -> {found.after}"
