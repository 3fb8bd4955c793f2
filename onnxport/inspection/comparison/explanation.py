"""Which nodes of two models a match of their data flow explains, whatever an optimizer made of them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.inspection.comparison.attribution import MOVES, values_between
from onnxport.inspection.comparison.equal_answers import Pair
from onnxport.validate.translation.constants import find_constants
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.matches import Match, Mismatch


@dataclass(frozen=True)
class Explained:
    """Names of values of two models whose nodes are known to compute the same."""

    first: set[str]
    second: set[str]


def explain(
    graphs: tuple[Graph, Graph],
    models: tuple[Model, Model],
    matches: Sequence[Match],
    mismatches: Sequence[Mismatch],
    same: Set[Pair],
) -> Explained:
    """Return what is explained.

    Args:
        graphs: the normal forms of the models: of the source, and of the other.
        same: pairs of values that differ by their form alone.
    """
    known: tuple[set[str], set[str]] = (set(), set())
    for match in matches:
        ends = (match.source.core.value, match.original), (match.head.core.value, match.value)
        _add(known, ends)
    off: tuple[set[str], set[str]] = (set(), set())
    for found in mismatches:
        ends = (found.source.value, found.pair[1]), (found.core.value, found.pair[0])
        _add(known if found.pair in same else off, ends)
    for names, wrong, graph, model in zip(known, off, graphs, models, strict=True):
        names |= _without_form(graph, model)
        names |= _inside(model, names, wrong)
    return Explained(*known)


def _add(names: tuple[set[str], set[str]], ends: tuple[Pair, Pair]) -> None:
    """Add the names of the values between a core and what follows it, of both sides."""
    for side, (core, last) in zip(names, ends, strict=True):
        side.update(each.name for each in values_between(core, last) if each.name)


def _without_form(graph: Graph, model: Model) -> set[str]:
    """Return values whose nodes are not in a normal form: sizes that are folded, and what only moves axes."""
    folded = find_constants(graph.model.graph)
    left = {value.name for node in graph.model.graph for value in node.outputs if value not in folded}
    return {
        value.name or ""
        for node in model.graph
        for value in node.outputs
        if node.op_type in MOVES or value.name not in left
    }


def _inside(model: Model, known: set[str], wrong: set[str]) -> set[str]:
    """Return values between explained ones, as inside of a function that is compared as a whole (HardSwish)."""
    found: set[str] = set()
    seen: set[ir.Node] = set()
    for node in model.graph:
        if node in seen or _is_known(node, known):
            continue
        region, pending = [], [node]
        while pending:
            each = pending.pop()
            if each not in seen and not _is_known(each, known):
                seen.add(each)
                region.append(each)
                pending += [*each.predecessors(), *each.successors()]
        names = {value.name or "" for each in region for value in each.outputs}
        is_read = all(each.successors() for each in region)
        if is_read and not names & wrong and not any(v.is_graph_output() for e in region for v in e.outputs):
            found |= names
    return found


def _is_known(node: ir.Node, known: set[str]) -> bool:
    return any(value.name in known for value in node.outputs)
