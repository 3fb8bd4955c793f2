"""What changed between an ONNX model and a form that was converted from it: `.ort`, `.tflite`, `.mlpackage`.

Both are matched as a proof matches them (validate/translation): by data flow, from the outputs back to the inputs,
where folding, fusion, the order of axes and quantization no longer show. What does not match is a change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Feeds
from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.inspection.comparison.attribution import Attribution
from onnxport.inspection.comparison.constants import storage_of
from onnxport.inspection.comparison.report import Became, Change, Comparison, Detail, NodeName
from onnxport.inspection.comparison.view import View
from onnxport.runtimes.base import RunError
from onnxport.validate.precision import precision_of
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.judgement import ROUNDINGS
from onnxport.validate.translation.matches import Mismatch, match_graphs
from onnxport.validate.translation.opened_form import Opened, open_form
from onnxport.validate.translation.parameters import Product, check_products, products

# Domains of the operators of a form that are not written in ONNX's.
_OPAQUE = frozenset({"tflite", "mil"})


def compare_forms(first: Model, second: Artifact, sets: Sequence[Feeds]) -> Comparison:
    """Return what differs between an ONNX model and a converted form, at the sizes of one set of inputs.

    Where nothing differs there, and another set has other sizes, it is what differs at these: a softmax over the batch
    is nothing at batch 1.

    Args:
        sets: inputs of the model; the first that the form takes gives the sizes.

    Raises:
        InputError: the form is damaged, or takes images or keeps a state.
        RunError: its runtime cannot run it.
    """
    opened = open_form(second, sets)
    found = _compare_at(first, second, opened)
    others = [each for each in sets if {name: each[name].shape for name in each} != opened.sizes]
    if others and all(each.kind == "stored" for each in found.changes):
        with contextlib.suppress(InputError, RunError):  # the form has fixed sizes
            other = _compare_at(first, second, open_form(second, others[:1]))
            return other if any(each.kind != "stored" for each in other.changes) else found
    return found


def _compare_at(first: Model, second: Artifact, opened: Opened) -> Comparison:
    source = Graph(first, opened.sizes, ROUNDINGS.get(precision_of(second), ""))
    return _Forms(first, second, opened, source).compare()


class _Forms:
    def __init__(self, first: Model, second: Artifact, opened: Opened, source: Graph) -> None:
        self._first, self._second, self._opened, self._source = first, second, opened, source
        self._first_view, self._form_view = View(first), View(opened.model)
        # Of several nodes that stand for one operator of the form, the first has its weight.
        self._operators: dict[str, ir.Node] = {}
        for node in self._form_view.nodes:
            if _weight(self._form_view, node):
                self._operators.setdefault(opened.label(node.outputs[0]), node)
        self._attribution = Attribution(source, first, opened.label)
        self._nodes = self._attribution.nodes
        self._matching = match_graphs(opened.artefact.graph, source)

    def compare(self) -> Comparison:
        changes: dict[str, list[Detail]] = {}
        names: dict[str, NodeName] = {}
        for node, detail in (*self._settings(), *self._numbers()):
            names[node.value] = node
            changes.setdefault(node.value, []).append(detail)
        became = tuple(self._became())
        return Comparison(
            first=str(self._first.path),
            second=str(self._second.path),
            model=tuple(self._signature()),
            equal=len(became),
            changes=tuple(_as_changes(names, changes)),
            notes=tuple(self._notes()),
            became=became,
        )

    def _signature(self) -> Iterator[Detail]:
        yield Detail(kind="model", what="format", before="onnx", after=self._second.format)

    def _settings(self) -> Iterator[tuple[NodeName, Detail]]:
        """Yield what does not match."""
        for each in self._matching.mismatches:
            if self._is_opaque(each.core.value):
                continue
            detail = Detail(
                kind="input" if each.is_structure else "attribute",
                what=f"{self._label(each.core.value)}: {each.reason}",
                before="",
                after="",
            )
            yield self._guilty(each), detail

    def _guilty(self, found: Mismatch) -> NodeName:
        head = self._opened.artefact.graph.head(found.pair[0])
        is_bounded = bool(np.isfinite(head.low).any() or np.isfinite(head.high).any())
        node = self._attribution.of_mismatch(found, self._matching, is_bounded=is_bounded)
        return _named(node) if node is not None else self._name(found.source.value, found.source.label)

    def _numbers(self) -> Iterator[tuple[NodeName, Detail]]:
        """Yield how weights are stored, and which of them are not the source's."""
        found = list(products(self._matching.matches, has_integers=not self._source.rounding))
        for product in {each.core.value: each for each in found}.values():
            node = self._name(product.source.value, product.source.label)
            if stored := self._storage(product):
                yield node, stored
        for product, finding in self._check(found):
            text = finding.text if finding.kind == "fault" else f"{finding.text} (it may be another rounding)"
            detail = Detail(kind="weight", what=f"{finding.node}: {text}", before="", after="")
            guilty = self._attribution.of_product(product)
            yield (
                self._name(product.source.value, product.source.label) if guilty is None else _named(guilty),
                detail,
            )

    def _check(self, found: list[Product]) -> Iterator[tuple[Product, Finding]]:
        if self._source.rounding:
            for product in found:
                yield from ((product, each) for each in product.check_rounding(self._source.rounding))
        else:
            yield from check_products(found, self._opened.artefact.note, {}, {})

    def _storage(self, product: Product) -> Detail | None:
        """Return how the weight of a product is stored in either file, if otherwise."""
        label = self._label(product.core.value)
        stored = _weight(self._first_view, self._nodes.get(product.source.value.name or ""))
        made = _weight(self._form_view, self._operators.get(label))
        if not stored or not made or stored == made:
            return None
        return Detail(kind="storage", what=f"weight of {label}", before=stored, after=made)

    def _is_opaque(self, value: ir.Value) -> bool:
        """Return whether an operator of the form gives a value that has no counterpart in ONNX here, as a WHILE."""
        node = value.producer()
        return node is not None and node.domain in _OPAQUE

    def _notes(self) -> Iterator[str]:
        for finding in self._opened.artefact.check_views(self._matching, self._source, self._opened.feeds):
            label = self._opened.operators.get(finding.node, finding.node)
            yield f"{label} was not compared, nor what stands before it: {finding.text}"
        known = [each for each in self._matching.mismatches if not self._is_opaque(each.core.value)]
        if any(each.is_structure for each in known):
            yield "nodes in front of those that do not match were not compared"

    def _became(self) -> Iterator[Became]:
        """Yield what each matched value of the form stands for, the first of the model first."""
        places = {node: place for place, node in enumerate(self._first.graph)}
        found = {}
        for match in self._matching.matches:
            behind = self._attribution.between(match.source.core.value, match.original)
            nodes = sorted(set(behind), key=places.__getitem__)
            if nodes and match.head.core.op not in ("Input", "Constant"):
                names = tuple(_named(node) for node in nodes)
                found[places[nodes[0]], names] = Became(
                    first=names, second=self._label(match.head.core.value)
                )
        yield from (found[each] for each in sorted(found, key=lambda each: each[0]))

    def _label(self, value: ir.Value) -> str:
        """Return the form's operator that gives a value, in the form's words."""
        return self._opened.label(value)

    def _name(self, value: ir.Value, label: str) -> NodeName:
        node = self._attribution.owner(value.name or "")
        if node is not None:
            return _named(node)
        op, _, name = label.partition(" ")
        return NodeName(op=op, name=name.strip("'"), value=value.name or "")


def _as_changes(names: Mapping[str, NodeName], details: Mapping[str, list[Detail]]) -> Iterator[Change]:
    for value, found in details.items():
        is_stored = all(each.kind == "storage" for each in found)
        yield Change(kind="stored" if is_stored else "changed", node=names[value], details=tuple(found))


def _named(node: ir.Node) -> NodeName:
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}::"
    return NodeName(op=f"{domain}{node.op_type}", name=node.name or "", value=node.outputs[0].name or "")


def _weight(view: View, node: ir.Node | None) -> str:
    """Return how the first constant with more than one axis that a node reads is stored; empty for none."""
    for each in [] if node is None else view.origins(node):
        if each is not None and each.is_constant and each.numbers.ndim > 1:
            return storage_of(each)
    return ""
