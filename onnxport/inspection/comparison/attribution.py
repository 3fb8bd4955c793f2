"""Which node of a model a difference is about, where one operator of a converted form stands for several.

    Conv, BatchNormalization, Clip -> CONV_2D      no upper bound: the Clip; another scale: the BatchNormalization
    Conv, Relu                     -> LEAKY_RELU   the Relu, whose result has this name in the form, too
    Transpose, Sigmoid             -> LOGISTIC     other axes: the Transpose, which the comparison moves behind

A factor of the channels is a convolution's as well as that of what follows it. Where most channels have another one,
the last that follows is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.model import Model
from onnxport.validate.translation.forms import Core
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.matches import Match, Matching, Mismatch
from onnxport.validate.translation.parameters import Product

_BOUNDS = frozenset({"Relu", "Clip", "HardSigmoid", "Min", "Max", "LeakyRelu"})
_SCALES = frozenset({"BatchNormalization", "HardSigmoid", "Mul", "Div", "Neg"})
_SHIFTS = frozenset({"BatchNormalization", "HardSigmoid", "Add", "Sub"})
_BEHIND = {"bound": _BOUNDS, "scale": _SCALES, "shift": _SHIFTS}  # what follows a core
MOVES = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
# In names of values that the normal form of a graph adds: "output/Gather.formula8", "x/Transpose.layout1", "y/laid".
_ADDED = (".formula", ".layout")
_LAID = "laid"
_UNIFORM = 1e-5  # of a factor: what folding in float32 moves it
_NOISE = 2e-6  # of the largest weight
_LEFT = 0.1  # of a difference: what a factor leaves of it where it explains it
_EPSILON = 0.05  # of the difference of two epsilons, or shifts
_MOST = 0.5  # of the channels that differ; where a factor explains fewer, it is the weight
_UPWARDS = 8  # nodes between an operator and what moved its axes

_Pair = tuple[ir.Value, ir.Value]


class Attribution:
    """The nodes of `model`, the first of a comparison.

    Args:
        source, form: the normal forms of it and of the other.
        label: names a value of the form by its operator there.
    """

    def __init__(self, source: Graph, model: Model, form: Graph, label: Callable[[ir.Value], str]) -> None:
        self._source, self._form, self._label = source, form, label
        self.nodes = {
            value.name: node for node in model.graph for value in node.outputs if value.name is not None
        }
        # As an identifier, which names are in Core ML.
        self._by_word = {re.sub(r"\W", "_", name): node for name, node in self.nodes.items()}
        self._by_own_name = {node.name: node for node in model.graph if node.name}
        self._values = {value.name: value for value in model.graph.inputs} | {
            name: node.outputs[0] for name, node in self.nodes.items()
        }

    def of_mismatch(self, found: Mismatch, matching: Matching, *, is_bounded: bool) -> ir.Node | None:
        """Return the node that a mismatch is about; None where that is the core's own.

        Args:
            is_bounded: whether the form cuts its own core off, so that a Relu or Clip behind it is there.
        """
        chain = list(self.between(found.source.value, found.pair[1]))
        if not found.is_structure and (reader := self._early_reader(found.pair, matching)):
            return reader
        if found.is_structure and (left_out := self._left_out(found.pair, matching)):
            return left_out
        if found.core.op in MOVES and found.source.op in MOVES and (mover := self._mover_of(found)):
            return mover
        if found.is_structure and (reader := self._reader_of_another(found, chain, matching)):
            return reader
        if found.about in _BEHIND:
            return _last(chain, _BEHIND[found.about])
        ours, theirs = found.core.value.name or "", found.source.value.name or ""
        if found.core.op in MOVES and (mover := self._mover_of(found)):
            return mover
        if found.about != "operator":
            return None
        if found.source.op in MOVES and _is_added(theirs):  # the form has not moved these axes
            ops = {"Transpose"} if "/Transpose." in theirs else {found.source.op}
            if (mover := self._mover(theirs, ops)) is not None:
                return mover
        same = self._named(found.core.value)
        named = next((node for node in chain if node is same or node.outputs[0].name == ours), None)
        named = named or self.owner(found.pair[1].name or "")
        is_there = named is not None and named.op_type in _BOUNDS and is_bounded
        return self.owner(theirs) if is_there else named

    def _mover_of(self, found: Mismatch) -> ir.Node | None:
        """Return the node that moves the axes which a normal form has in another order."""
        ours, theirs = found.core.value.name or "", found.source.value.name or ""
        has_axes = bool({"axis", "axes"} & found.source.attributes.keys())  # its own may be others
        if has_axes or not (_is_added(ours) or _is_added(theirs)):
            return None
        moved = theirs if _is_added(theirs) else found.pair[1].name or ""
        is_order = _reads_order(found.core) != _reads_order(found.source)
        wanted = {"Transpose" if is_order else found.core.op}
        return self._mover(moved, wanted) or self._mover(moved, MOVES)

    def of_product(self, product: Product) -> ir.Node | None:
        """Return the node that a product's other weights or bias are about; None where that is the product's own."""
        chain = list(self.between(product.match.source.core.value, product.match.original))
        ours, theirs = product.core.weight, product.source.weight
        if ours is None or theirs is None or product.match.source.core.weight is None:
            return None
        if product.is_weight_rounded:
            own = self.nodes.get(product.source.value.name or "")
            has_bias = own is not None and len(own.inputs) > 2 and own.inputs[2] is not None
            return None if has_bias else _last(chain, _shifting(product))
        factors = _factors_of(product)
        if factors is None:
            return None
        scaling, norm = _last(chain, _SCALES), _last(chain, frozenset({"BatchNormalization"}))
        if norm is not None and _is_epsilon(norm, factors):
            return norm
        # A normalization has a factor for each channel: one for all is the weight's own.
        other = factors[factors != 1]
        is_one = float(np.ptp(other)) < _UNIFORM * float(np.abs(other).max())
        return None if scaling is not None and scaling is norm and is_one else scaling

    def of_swapped(self, product: Product, others: Iterable[Product], matching: Matching) -> ir.Node | None:
        """Return the node that reads two products in each other's place; None for a product of other weights."""
        for other in others:
            if other is not product and _is_swapped(product, other) and _is_swapped(other, product):
                pairs = [(each.match.value, each.match.original) for each in (product, other)]
                return self._common_reader(pairs, matching)
        return None

    def _common_reader(self, pairs: Sequence[_Pair], matching: Matching) -> ir.Node | None:
        """Return the node that first reads both of two pairs of values, as they are or by way of others."""
        own = {self.owner(pair[1].name or "") for pair in pairs} - {None}
        for node in self.nodes.values():
            if len(own) > 1 and own <= {*node.predecessors()}:
                return node
        waiting, reached = [[pair] for pair in pairs], [set[_Pair](), set[_Pair]()]
        for _ in range(_UPWARDS):
            waiting = [[on for each in side for on in matching.readers.get(each, ())] for side in waiting]
            for side, found in zip(waiting, reached, strict=True):
                found.update(side)
            if both := reached[0] & reached[1]:
                core = self._source.head(min(both, key=lambda pair: pair[1].name or "")[1]).core
                return self.owner(core.value.name or "")
        return None

    def is_scaled(self, product: Product) -> bool:
        """Return whether a factor explains a product's other weight."""
        return not product.is_weight_rounded and _factors_of(product) is not None

    def is_another(self, match: Match) -> bool:
        """Return whether the form's value of a match has the name of another node of the model than that it matches."""
        named = list(self._named_along(match.value))
        chain = list(self.between(match.source.core.value, match.original))
        return bool(named) and bool(chain) and not any(node in chain for node in named)

    def between(self, core: ir.Value, last: ir.Value) -> Iterator[ir.Node]:
        """Yield the nodes between a core and the value that follows it, both included, the last one first."""
        for value in values_between(core, last):
            if (own := self.nodes.get(value.name or "")) is not None:
                yield own

    def _left_out(self, pair: _Pair, matching: Matching) -> ir.Node | None:
        """Return a node whose operand the form has in its place, under its name; alike operators match by mistake.

        source: y = Add(a, d), a = Add(b, c)        form: a = Add(b, c) in the place of y: a does not match b
        """
        waiting, found = [pair], None
        for _ in range(_UPWARDS):
            for value, original in waiting:
                chain = list(self.between(self._source.head(original).core.value, original))
                named = [node for node in self._named_along(value) if node not in chain]
                # Operators that only move axes are in neither graph.
                passed = [node for node in chain if node.op_type not in MOVES]
                found = next(
                    (each for each in passed if any(node in each.predecessors() for node in named)), found
                )
            waiting = [reader for each in waiting for reader in matching.readers.get(each, ())]
        return found

    def _named_along(self, value: ir.Value) -> Iterator[ir.Node]:
        """Yield the model's nodes that have the name of a value of the form, or of one that it follows, to its core."""
        for each in values_between(self._form.head(value).core.value, value):
            for node in (self._named(each), self.nodes.get(each.name or "")):
                if node is not None:
                    yield node

    def _early_reader(self, pair: _Pair, matching: Matching) -> ir.Node | None:
        """Return the node that reads another value than it should, where the form has the right one for others."""
        off = {each.pair for each in matching.mismatches}
        is_there = any(
            each.original is pair[1] and (each.value, each.original) not in off for each in matching.matches
        )
        readers = matching.readers.get(pair, ())
        if not is_there or len(readers) != 1:
            return None
        return self.owner(self._source.head(readers[0][1]).core.value.name or "")

    def _named(self, value: ir.Value) -> ir.Node | None:
        """Return the model's node that has the name of a value of the form, or of the form's node behind it."""
        name = self._label(value).partition("'")[2].rstrip("'")
        return self.nodes.get(name) or self._by_own_name.get(name) or self._by_word.get(name)

    def _reader_of_another(
        self, found: Mismatch, chain: Sequence[ir.Node], matching: Matching
    ) -> ir.Node | None:
        """Return the node that reads a value of the model in place of the one that it should."""
        named = self._named(found.core.value)
        readers = matching.readers.get(found.pair, ())
        own = [self.owner(each.name or "") for each in (found.source.value, found.pair[1])]
        if named is None or named in (*chain, *own) or len(readers) != 1:
            return None
        if own[0] is not None and named in own[0].predecessors():  # what follows it is left out
            return None
        # The nearest to the core of those that follow it, else what reads their result.
        return chain[-2] if len(chain) > 1 else self.owner(readers[0][1].name or "")

    def owner(self, name: str) -> ir.Node | None:
        """Return the node that gives a value, or for which the normal form added it."""
        while name not in self.nodes and _is_added(name):
            name = name.rpartition("/")[0]
        return self.nodes.get(name)

    def _mover(self, name: str, ops: Set[str]) -> ir.Node | None:
        """Return the node of `ops` that moves the axes of a value: the nearest before it, else behind it."""
        base = name
        while _is_added(base):
            base = base.rpartition("/")[0]
        value = self._values.get(base)
        for _ in range(_UPWARDS):
            node = None if value is None else value.producer()
            if node is None or node.op_type in ops:
                break
            value = node.inputs[0] if node.inputs else None
        else:
            node = None
        if node is None and base in self._values:
            node = self._mover_behind(self._values[base], ops)
        return node

    def _mover_behind(self, value: ir.Value, ops: Set[str]) -> ir.Node | None:
        """Return the nearest node of `ops` that moves the axes of a value, with others that do between them."""
        waiting = [value]
        for _ in range(_UPWARDS):
            users = [user for each in waiting for user, _ in each.uses() if user.op_type in MOVES]
            if (found := next((user for user in users if user.op_type in ops), None)) is not None:
                return found
            waiting = [user.outputs[0] for user in users]
        return None


def values_between(core: ir.Value, last: ir.Value) -> Iterator[ir.Value]:
    """Yield the values between a core and the value that follows it, both included, the last one first."""
    waiting, seen = [last], set[ir.Value]()
    while waiting:
        value = waiting.pop(0)
        if value in seen:
            continue
        seen.add(value)
        yield value
        node = value.producer()
        if value is not core and node is not None:
            waiting += [each for each in node.inputs if each is not None]


def _reads_order(core: Core) -> bool:
    """Return whether a core reads what a Transpose gives."""
    value = core.operands[0] if core.operands else None
    node = value.producer() if isinstance(value, ir.Value) else None
    return node is not None and node.op_type == "Transpose"


def _last(chain: Sequence[ir.Node], ops: frozenset[str]) -> ir.Node | None:
    return next((node for node in chain if node.op_type in ops), None)


def _is_added(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last == _LAID or any(each in last for each in _ADDED)


def _is_swapped(product: Product, other: Product) -> bool:
    """Return whether the form's weight is that of another product of the source."""
    ours, theirs = product.core.weight, other.source.weight
    if ours is None or theirs is None or ours.values.shape != theirs.values.shape:
        return False
    slack = ours.half + _NOISE * float(np.abs(theirs.values).max(initial=0.0))
    return bool((np.abs(ours.values - theirs.values) <= slack).all())


def _shifting(product: Product) -> frozenset[str]:
    """Return the operators that may have another bias: HardSigmoid's is one number for all channels."""
    ours, theirs = product.core.bias, product.source.bias
    if ours is None or theirs is None or ours.values.shape != theirs.values.shape:
        return _SHIFTS
    moved = np.abs(ours.values - theirs.values)
    is_one = float(np.ptp(moved)) <= _EPSILON * float(moved.max(initial=0.0))
    return _SHIFTS if is_one else _SHIFTS - {"HardSigmoid"}


def _factors_of(product: Product) -> Array | None:
    ours, theirs = product.core.weight, product.source.weight
    if ours is None or theirs is None:
        return None
    axis = {"MatMul": -1, "ConvTranspose": 1}.get(product.core.op, 0)
    return _factors(ours.values, theirs.values, np.broadcast_to(ours.half, ours.values.shape), axis)


def _factors(ours: Array, theirs: Array, half: Array, axis: int) -> Array | None:
    """Return the factor of each channel, 1 where two weights agree; None where factors do not explain them.

    One channel alone of several is the weight's own fault.
    """
    if ours.shape != theirs.shape:
        return None
    first, second, slack = (
        np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (ours, theirs, half)
    )
    squares = np.square(second).sum(1)
    factors = np.where(squares > 0, (first * second).sum(1) / np.where(squares > 0, squares, 1), 1.0)
    noise = _NOISE * np.abs(theirs).max(initial=0.0)
    off = np.abs(first - second)
    differs = ~(off <= slack + noise).all(axis=1)
    left = np.abs(first - factors[:, None] * second)
    explained = differs & (left <= slack + noise + _LEFT * off.max(axis=1, keepdims=True)).all(axis=1)
    is_one_of_many = differs.sum() == 1 < len(differs)
    is_rule = first.shape[1] > 1 and explained.sum() > _MOST * differs.sum()
    return np.where(differs, factors, 1.0) if is_rule and not is_one_of_many else None


def _is_epsilon(norm: ir.Node, factors: Array) -> bool:
    """Return whether another epsilon explains the factors f behind a normalization of variance v.

    f = sqrt((v + e) / (v + e')), so (1 / f^2 - 1) (v + e) is e' - e in all channels.
    """
    variance = _numbers(norm, 4)
    if variance is None or len(variance) != len(factors) or not factors.all():
        return False
    moved = (1 / np.square(factors) - 1) * (variance + norm.attributes.get_float("epsilon", 1e-5))
    moved = moved[factors != 1]
    return float(np.ptp(moved)) < _EPSILON * float(np.abs(moved).max())


def _numbers(node: ir.Node, place: int) -> Array | None:
    value = node.inputs[place]
    tensor = None if value is None else constant_tensor(value)
    return None if tensor is None else tensor.numpy().astype(np.float64)
