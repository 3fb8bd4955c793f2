"""What changed between two ONNX models of other nodes, as an optimizer makes them.

Nodes of one name and one kind are compared as they stand. Of the others, those that compute the same by data flow are
no change: Conv and BatchNormalization are one Conv in the optimized model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.inspection.comparison.attribution import MOVES
from onnxport.inspection.comparison.forms import forms_at, with_known_branches
from onnxport.inspection.comparison.report import Change, Comparison
from onnxport.validate.translation.opened_form import open_form


def compare_rewritten(
    first: Model, second: Artifact, sets: Sequence[Feeds], paired: Comparison
) -> Comparison:
    """Return what differs, with what became of which nodes.

    Args:
        paired: what the pairs of nodes tell.
    """
    forms = forms_at(first, second, open_form(second, sets, with_known_branches), sets)
    found, known = forms.compare(), forms.explained()
    guilty = {each.node.value: each for each in found.changes if each.kind != "stored"}
    kept: list[Change] = []
    for each in paired.changes:
        value = each.node.value
        if each.kind == "added":
            kept += [] if value in known.second else [each]
        elif value in guilty:
            kept.append(each if each.kind == "changed" else guilty[value])
        elif each.kind == "stored" or value not in known.first or (guilty and _has_other_axes(each)):
            kept.append(each)
    told = {each.node.value for each in kept}
    missing = [each for value, each in guilty.items() if value not in told]
    changes = tuple(_in_order(first, kept, missing, set(guilty)))
    touched = {each.node.value for each in paired.changes} - {each.node.value for each in changes}
    became = tuple(each for each in found.became if any(node.value in touched for node in each.first))
    return paired.model_copy(update={"changes": changes, "became": became})


def _has_other_axes(change: Change) -> bool:
    """Return whether a node moves axes otherwise: in normal forms that is a part of what reads them."""
    is_set = any(detail.kind == "attribute" for detail in change.details)
    return change.kind == "changed" and change.node.op in MOVES and is_set


def _in_order(
    model: Model, kept: Sequence[Change], missing: Sequence[Change], guilty: set[str]
) -> Iterator[Change]:
    """Yield changes in the order of the model; those of removed nodes behind what alone read them."""
    places: dict[str, float] = {
        value.name or "": place for place, node in enumerate(model.graph) for value in node.outputs
    }
    alone = _read_alone_by(model, guilty)
    found: list[tuple[float, Change]] = []
    last = -1.0
    for change in kept:
        # Added nodes stay behind what they follow.
        last = last if change.kind == "added" else places.get(change.node.value, last)
        reader = alone.get(change.node.value) if change.kind == "removed" else None
        found.append((last if reader is None else places[reader] + 0.5, change))
    found += [(places.get(change.node.value, len(places)), change) for change in missing]
    yield from (change for _, change in sorted(found, key=lambda each: each[0]))


def _read_alone_by(model: Model, guilty: set[str]) -> dict[str, str]:
    """Return the values that nothing but one guilty node reads in the end, with the value that this gives."""
    found: dict[ir.Node, str] = {}
    for node in reversed(model.graph):
        own = [value.name or "" for value in node.outputs if value.name in guilty]
        readers = {found.get(each, "") for each in node.successors()}
        is_output = any(value.is_graph_output() for value in node.outputs)
        if own:
            found[node] = own[0]
        elif len(readers) == 1 and not is_output:
            found[node] = readers.pop()
    return {
        value.name or "": name
        for node, name in found.items()
        for value in node.outputs
        if name and value.name != name
    }
