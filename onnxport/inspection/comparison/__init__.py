"""What changed between two ONNX models: nodes, attributes, weights, opsets, quantization.

`compare_models` reads both at one opset, pairs their nodes, and lists what differs in each pair.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.inspection.comparison.attributes import compare_attributes
from onnxport.inspection.comparison.constants import compare_constants, compare_grids
from onnxport.inspection.comparison.node_pairs import Pairs, pair_nodes
from onnxport.inspection.comparison.report import Change, Comparison, Detail, NodeName
from onnxport.inspection.comparison.view import Origin, View
from onnxport.optimizers.opset import LiftError, convert_opset

__all__ = ["Change", "Comparison", "Detail", "NodeName", "compare_models"]


def compare_models(first: Model, second: Model) -> Comparison:
    """Return what differs between two models.

    Identity, Constant and the grids of a quantization count as part of what they carry: a weight that is stored in
    int8 is the same weight if each number lies within half a step.
    """
    model = tuple(_compare_signatures(first, second))
    paths = str(first.path), str(second.path)
    first, second, notes = _at_one_opset(first, second)
    views = View(first), View(second)
    pairs = pair_nodes(*views)
    changes = dict(_changes(views, pairs))
    model += tuple(_compare_ends(views, pairs))
    return Comparison(
        first=paths[0],
        second=paths[1],
        model=model,
        equal=len(pairs) - sum(node in pairs for node in changes),
        changes=tuple(changes[node] for node in _in_order(views, pairs) if node in changes),
        notes=notes,
    )


def _compare_ends(views: tuple[View, View], pairs: Pairs) -> Iterator[Detail]:
    """Yield outputs of the models that other values give."""
    others = {value.name: value for value in views[1].model.graph.outputs}
    for value in views[0].model.graph.outputs:
        if (other := others.get(value.name)) is None:
            continue
        one, two = views[0].origin(value), views[1].origin(other)
        if one.is_constant != two.is_constant or not (
            one.is_constant or _is_partner(one.value, two.value, pairs)
        ):
            before, after = _say_origins(one, two)
            yield Detail(kind="model", what=f"what gives output {value.name}", before=before, after=after)


def _changes(views: tuple[View, View], pairs: Pairs) -> Iterator[tuple[ir.Node, Change]]:
    for node in views[0].nodes:
        if node not in pairs:
            yield node, Change(kind="removed", node=_name(node))
        elif details := tuple(_compare_nodes(node, pairs[node], views, pairs)):
            is_stored = all(detail.kind == "storage" for detail in details)
            yield node, Change(kind="stored" if is_stored else "changed", node=_name(node), details=details)
    partners = set(pairs.values())
    yield from (
        (each, Change(kind="added", node=_name(each))) for each in views[1].nodes if each not in partners
    )


def _in_order(views: tuple[View, View], pairs: Pairs) -> list[ir.Node]:
    """Return the nodes of the first model and those that only the second has, each behind the one that it follows."""
    places: dict[ir.Node, float] = {node: number for number, node in enumerate(views[0].nodes)}
    partners = {partner: places[node] for node, partner in pairs.items()}
    giving = {value.name: places[node] for node in views[0].nodes for value in node.outputs if value.name}
    for node in reversed([node for node in views[1].nodes if node not in partners]):
        # One that gives a value of the same name stands for the node that gave it, others for what they lead to.
        own = [giving[value.name] for value in node.outputs if value.name in giving]
        read = [
            places[reader] if reader in places else partners[reader] - 0.5
            for value in node.outputs
            for reader in views[1].readers(value)
            if reader in places or reader in partners  # one in the branch of an If is in neither
        ]
        places[node] = min(own or read, default=len(views[0].nodes))
    # Of one place, what is gone comes first; the added ones were put in from the end.
    added = {node: number for number, node in enumerate(views[1].nodes)}
    return sorted(places, key=lambda node: (places[node], added.get(node, -1)))


def _at_one_opset(first: Model, second: Model) -> tuple[Model, Model, tuple[str, ...]]:
    """Return both models at the newer of their opsets, where the older one has a form there."""
    opset = max(first.opset, second.opset)
    if first.opset == second.opset:
        return first, second, ()
    try:
        return convert_opset(first, opset).model, convert_opset(second, opset).model, ()
    except LiftError as error:
        return first, second, (f"compared at their own opsets: {error.what}",)


def _compare_signatures(first: Model, second: Model) -> Iterator[Detail]:
    domains = {**first.ir.opset_imports, **second.ir.opset_imports}
    rows = [
        (
            f"opset {domain or 'ai.onnx'}",
            *(str(each.ir.opset_imports.get(domain, "")) for each in (first, second)),
        )
        for domain in domains
    ]
    for side in ("inputs", "outputs"):
        specs = [
            {spec.name: str(spec).removeprefix(f"{spec.name}: ") for spec in getattr(model, side)}
            for model in (first, second)
        ]
        rows += [
            (f"{side[:-1]} {name}", specs[0].get(name, ""), specs[1].get(name, ""))
            for name in {**specs[0], **specs[1]}
        ]
    for what, before, after in rows:
        if before != after:
            yield Detail(kind="model", what=what, before=before, after=after)


def _compare_nodes(
    node: ir.Node, partner: ir.Node, views: tuple[View, View], pairs: Pairs
) -> Iterator[Detail]:
    yield from compare_attributes(node, partner, views[0].model.opset, views[1].model.opset)
    names = [[value.name for value in each.outputs if value.name] for each in (node, partner)]
    if names[0] != names[1] and set(names[0]) == set(names[1]):
        yield Detail(kind="output", what="outputs", before=", ".join(names[0]), after=", ".join(names[1]))
    mine, its = views[0].origins(node), views[1].origins(partner)
    for index in range(max(len(mine), len(its))):
        one = mine[index] if index < len(mine) else None
        other = its[index] if index < len(its) else None
        if detail := _compare_inputs(index, one, other, pairs):
            yield detail


def _compare_inputs(index: int, one: Origin | None, other: Origin | None, pairs: Pairs) -> Detail | None:
    if one is not None and other is not None:
        if one.is_constant and other.is_constant:
            return compare_constants(f"weight {one.value.name}", one, other)
        if not one.is_constant and not other.is_constant and _is_partner(one.value, other.value, pairs):
            return compare_grids(f"value {one.value.name}", one.dequantized_by, other.dequantized_by)
    if one is None and other is None:
        return None
    before, after = _say_origins(one, other)
    return Detail(kind="input", what=f"input {index}", before=before, after=after)


def _is_partner(one: ir.Value, other: ir.Value, pairs: Pairs) -> bool:
    node, partner = one.producer(), other.producer()
    if node is not None and partner is not None and node in pairs:
        return pairs[node] is partner and node.outputs.index(one) == partner.outputs.index(other)
    return one.name == other.name  # what gives it is another change


def _say_origins(one: Origin | None, other: Origin | None) -> tuple[str, str]:
    """Return two origins in words: by their nodes where the values have one name."""
    words = _words(one), _words(other)
    if words[0] != words[1] or one is None or other is None:
        return words
    first, second = (
        f"{node.op_type} {node.name!r}" if (node := each.value.producer()) else words[0]
        for each in (one, other)
    )
    return first, second


def _words(origin: Origin | None) -> str:
    if origin is None:
        return ""
    node = origin.value.producer()
    what = "the constant " if origin.is_constant else "" if node is not None else "the input "
    return f"{what}{origin.value.name}"


def _name(node: ir.Node) -> NodeName:
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}::"
    return NodeName(op=f"{domain}{node.op_type}", name=node.name or "", value=node.outputs[0].name or "")
