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
from onnxport.inspection.comparison.equal_answers import Pair, equal_answers, may_be_another_form
from onnxport.inspection.comparison.explanation import Explained, explain
from onnxport.inspection.comparison.report import Became, Change, Comparison, Detail, NodeName
from onnxport.inspection.comparison.view import View
from onnxport.optimizers.branches import inline_known_branches
from onnxport.runtimes.base import RunError
from onnxport.validate.precision import precision_of
from onnxport.validate.translation.expansion import expand
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.judgement import ROUNDINGS
from onnxport.validate.translation.layouts.sizes import fix_sizes
from onnxport.validate.translation.matches import Matching, Mismatch, match_graphs, match_named_values
from onnxport.validate.translation.opened_form import Opened, open_form
from onnxport.validate.translation.parameters import Product, check_products, products

# Domains of the operators of a form that are not written in ONNX's.
_OPAQUE = frozenset({"tflite", "mil"})
# Of several operators that stand for one of ONNX, the last may follow an unknown one: so many before it are looked at.
_BEFORE = 4
_FEW = 8  # products of other weights: of more, none is searched that was swapped with another
# Operators of ONNX that a form has as several.
_COMPOSED = frozenset({"LSTM", "GRU", "RNN", "If", "Loop", "Scan"})


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
    opened = open_form(second, sets, with_known_branches)
    found = forms_at(first, second, opened, sets).compare()
    others = [each for each in sets if {name: each[name].shape for name in each} != opened.sizes]
    if others and all(each.kind == "stored" for each in found.changes):
        with contextlib.suppress(InputError, RunError):  # the form has fixed sizes
            opened = open_form(second, others[:1], with_known_branches)
            other = forms_at(first, second, opened, others).compare()
            return other if any(each.kind != "stored" for each in other.changes) else found
    return found


def forms_at(first: Model, second: Artifact, opened: Opened, sets: Sequence[Feeds]) -> Forms:
    """Return the comparison with an opened form, at its sizes.

    Args:
        sets: inputs; those of these sizes tell what gives the same numbers.
    """
    first = with_known_branches(first, opened.sizes)
    source = Graph(first, opened.sizes, ROUNDINGS.get(precision_of(second), ""))
    alike = [each for each in sets if {name: each[name].shape for name in each} == opened.sizes]
    return Forms(first, second, opened, source, alike)


def with_known_branches(model: Model, sizes: Mapping[str, Sequence[int]]) -> Model:
    """Return a model with the branches that run at these sizes in place of each If: a form has no others."""
    if not any(node.op_type == "If" for node in model.graph):
        return model
    found = model.clone()
    expand(found.graph)  # of ONNX Runtime's operators the sizes are not known
    fix_sizes(found.ir, found.opset, sizes)
    while inline_known_branches(found):  # what a branch holds has other sizes then
        fix_sizes(found.ir, found.opset, sizes)
    return found


class Forms:
    """The comparison of a model with a form, at the sizes of one set of inputs."""

    def __init__(
        self, first: Model, second: Artifact, opened: Opened, source: Graph, sets: Sequence[Feeds]
    ) -> None:
        self._first, self._second, self._opened, self._source = first, second, opened, source
        self._sets = sets
        self._places = {value.name: place for place, node in enumerate(first.graph) for value in node.outputs}
        self._first_view, self._form_view = View(first), View(opened.model)
        # Of several nodes that stand for one operator of the form, the first has its weight.
        self._operators: dict[str, ir.Node] = {}
        for node in self._form_view.nodes:
            if _weight(self._form_view, node):
                self._operators.setdefault(opened.label(node.outputs[0]), node)
        self._attribution = Attribution(source, first, opened.artefact.graph, opened.label)
        self._nodes = self._attribution.nodes
        self._matching = match_graphs(opened.artefact.graph, source)
        self._products = list(products(self._matching.matches, has_integers=not source.rounding))
        self._findings = list(self._check(self._products))
        self._same = self._other_forms(self._matching, self._findings)

    def _other_forms(self, matching: Matching, findings: Sequence[tuple[Product, Finding]]) -> set[Pair]:
        """Return the pairs of values that differ by their form alone; rounded numbers are never the same."""
        if self._source.rounding or any(each.head.grids for each in matching.matches):
            return set()
        asked = [each.pair for each in matching.mismatches if may_be_another_form(each)]
        # A factor may be part of another product.
        asked += [_pair(product) for product, _ in findings if self._attribution.is_scaled(product)]
        graphs = self._opened.artefact.graph, self._source
        return equal_answers(*graphs, matching, asked, self._sets)

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
            changes=tuple(sorted(_as_changes(names, changes), key=self._place)),
            notes=tuple(self._notes()),
            became=became,
        )

    def _place(self, change: Change) -> int:
        """Return the place of a node in the first model: what stands before another may be why that differs."""
        return self._places.get(change.node.value, len(self._places))

    def explained(self) -> Explained:
        """Return what matches explain of both models, also of what stands in front of mismatches."""
        form, source = self._opened.artefact.graph, self._source
        more = match_named_values(form, source, self._matching)
        others = list(products(more.matches, has_integers=not source.rounding))
        findings = list(self._check(others))
        same = self._same | self._other_forms(more, findings)
        off = {each.pair for each in more.mismatches} | {_pair(each) for each, _ in findings}
        right = [each for each in more.matches if (each.value, each.original) not in off - same]
        return explain(
            (source, form),
            (self._first, self._opened.model),
            (*self._matching.matches, *right),
            (*self._matching.mismatches, *more.mismatches),
            same,
        )

    def _signature(self) -> Iterator[Detail]:
        yield Detail(kind="model", what="format", before="onnx", after=self._second.format)

    def _settings(self) -> Iterator[tuple[NodeName, Detail]]:
        """Yield what does not match."""
        for each in self._matching.mismatches:
            if self._is_opaque(each):
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
        for product in {each.core.value: each for each in self._products}.values():
            node = self._name(product.source.value, product.source.label)
            if stored := self._storage(product):
                yield node, stored
        wrong = [each for each, _ in self._findings] if len(self._findings) <= _FEW else []
        for product, finding in self._findings:
            if self._is_by_mistake(product):
                continue
            text = finding.text if finding.kind == "fault" else f"{finding.text} (it may be another rounding)"
            detail = Detail(kind="weight", what=f"{finding.node}: {text}", before="", after="")
            guilty = self._attribution.of_swapped(product, wrong, self._matching)
            guilty = guilty or self._attribution.of_product(product)
            yield (
                self._name(product.source.value, product.source.label) if guilty is None else _named(guilty),
                detail,
            )

    def _is_by_mistake(self, product: Product) -> bool:
        """Return whether two products are a pair by mistake: one has another's name, or a factor is elsewhere.

        In front of a node that is left out, a residual block is compared with the one before it.
        """
        if {_pair(product), product.match.operand} & self._same:
            return True
        is_sure = not any(each.is_structure for each in self._matching.mismatches)
        return not is_sure and self._attribution.is_another(product.match)

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

    def _is_opaque(self, found: Mismatch) -> bool:
        """Return whether one side is an operator that the other has in a form which is not known here.

        A WHILE of TFLite has no counterpart in ONNX, and the steps of a layer with peepholes are not read as one.
        """
        if found.pair in self._same:
            return True
        own = found.source.value.producer()
        is_other = found.is_structure and found.about == "operator"
        if _is_behind_opaque(found.core.value, _BEFORE if is_other else 0):
            return True
        is_quotient = own is not None and own.op_type == "Div" and _is_integer(found.source.value)
        return found.core.op != found.source.op and (is_quotient or found.source.op in _COMPOSED)

    def _notes(self) -> Iterator[str]:
        for finding in self._opened.artefact.check_views(self._matching, self._source, self._opened.feeds):
            label = self._opened.operators.get(finding.node, finding.node)
            yield f"{label} was not compared, nor what stands before it: {finding.text}"
        known = [each for each in self._matching.mismatches if not self._is_opaque(each)]
        for each in self._matching.mismatches:
            node = each.core.value.producer()
            if self._is_opaque(each) and (node is None or node.domain not in _OPAQUE):
                is_same = each.pair in self._same
                why = f"{each.core.label} gives the same numbers" if is_same else "it has another form there"
                yield f"{each.source.label} was not compared, nor what stands before it: {why}"
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


def _pair(product: Product) -> Pair:
    return product.match.value, product.match.original


def _named(node: ir.Node) -> NodeName:
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}::"
    return NodeName(op=f"{domain}{node.op_type}", name=node.name or "", value=node.outputs[0].name or "")


def _is_behind_opaque(value: ir.Value, depth: int) -> bool:
    """Return whether an operator that is not written in ONNX gives a value, or one of the `depth` before it."""
    waiting = [value.producer()]
    for _ in range(depth + 1):
        if any(node is not None and node.domain in _OPAQUE for node in waiting):
            return True
        waiting = [before for node in waiting if node is not None for before in node.predecessors()]
    return False


def _is_integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _weight(view: View, node: ir.Node | None) -> str:
    """Return how the first constant with more than one axis that a node reads is stored; empty for none."""
    for each in [] if node is None else view.origins(node):
        if each is not None and each.is_constant and each.numbers.ndim > 1:
            return storage_of(each)
    return ""
