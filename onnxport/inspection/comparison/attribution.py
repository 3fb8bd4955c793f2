"""Which node of a model a difference is about, where one operator of a converted form stands for several.

    Conv, BatchNormalization, Clip -> CONV_2D      no upper bound: the Clip; another scale: the BatchNormalization
    Conv, Relu                     -> LEAKY_RELU   the Relu, whose result has this name in the form, too
    Transpose, Sigmoid             -> LOGISTIC     other axes: the Transpose, which the comparison moves behind

A factor of the channels is a convolution's as well as that of what follows it. Where most channels have another one,
the last that follows is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.matches import Matching, Mismatch
from onnxport.validate.translation.parameters import Product

_BOUNDS = frozenset({"Relu", "Clip", "HardSigmoid", "Min", "Max", "LeakyRelu"})
_SCALES = frozenset({"BatchNormalization", "HardSigmoid", "Mul", "Div", "Neg"})
_SHIFTS = frozenset({"BatchNormalization", "HardSigmoid", "Add", "Sub"})
_MOVES = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
# In names of values that the normal form of a graph adds: "output/Gather.formula8", "x/Transpose.layout1", "y/laid".
_ADDED = (".formula", ".layout")
_LAID = "laid"
_UNIFORM = 1e-3  # of the largest weight
_MOST = 0.5  # of the channels; where fewer have another factor, it is the weight's
_UPWARDS = 8  # nodes between an operator and what moved its axes

_Pair = tuple[ir.Value, ir.Value]


class Attribution:
    """The nodes of `model`, the first of a comparison.

    Args:
        source: its normal form.
        label: names a value of the form by its operator there.
    """

    def __init__(self, source: Graph, model: Model, label: Callable[[ir.Value], str]) -> None:
        self._source, self._label = source, label
        self.nodes = {
            value.name: node for node in model.graph for value in node.outputs if value.name is not None
        }
        self._values = {value.name: value for value in model.graph.inputs} | {
            name: node.outputs[0] for name, node in self.nodes.items()
        }

    def of_mismatch(self, found: Mismatch, matching: Matching, *, is_bounded: bool) -> ir.Node | None:
        """Return the node that a mismatch is about; None where that is the core's own.

        Args:
            is_bounded: whether the form cuts its own core off, so that a Relu or Clip behind it is there.
        """
        chain = list(self.between(found.source.value, found.pair[1]))
        if found.is_structure and (left_out := self._left_out(found.pair, matching)):
            return left_out
        if found.is_structure and (reader := self._reader_of_another(found, chain, matching)):
            return reader
        if found.about == "bound":
            return _last(chain, _BOUNDS)
        if found.about == "scale":
            return _last(chain, _SCALES)
        if found.about == "shift":
            return _last(chain, _SHIFTS)
        ours, theirs = found.core.value.name or "", found.source.value.name or ""
        has_axes = bool({"axis", "axes"} & found.source.attributes.keys())  # its own may be others
        if found.core.op in _MOVES and _is_added(ours) and not has_axes:
            moved = theirs if _is_added(theirs) else found.pair[1].name or ""
            return self._mover(moved, {found.core.op}) or self._mover(moved, _MOVES)
        if found.about != "operator":
            return None
        if found.source.op in _MOVES and _is_added(theirs):  # the form has not moved these axes
            ops = {"Transpose"} if "/Transpose." in theirs else {found.source.op}
            if (mover := self._mover(theirs, ops)) is not None:
                return mover
        named = next((node for node in chain if node.outputs[0].name == ours), None)
        named = named or self.owner(found.pair[1].name or "")
        is_there = named is not None and named.op_type in _BOUNDS and is_bounded
        return self.owner(theirs) if is_there else named

    def of_product(self, product: Product) -> ir.Node | None:
        """Return the node that a product's other weights or bias are about; None where that is the product's own."""
        chain = list(self.between(product.match.source.core.value, product.match.original))
        ours, theirs = product.core.weight, product.source.weight
        if ours is None or theirs is None or product.match.source.core.weight is None:
            return None
        axis = {"MatMul": -1, "ConvTranspose": 1}.get(product.core.op, 0)
        half = np.broadcast_to(ours.half, ours.values.shape)
        factors = _factors(ours.values, theirs.values, half, axis)
        if factors is None:
            return None
        scaled = float(np.mean(np.abs(factors - 1.0) > _UNIFORM))
        if scaled > _MOST:
            return _last(chain, _SCALES)
        if scaled:
            return None
        own = self.nodes.get(product.source.value.name or "")
        has_bias = own is not None and len(own.inputs) > 2 and own.inputs[2] is not None
        return None if has_bias else _last(chain, _SHIFTS)

    def between(self, core: ir.Value, last: ir.Value) -> Iterator[ir.Node]:
        """Yield the nodes between a core and the value that follows it, both included, the last one first."""
        waiting, seen = [last], set[ir.Value]()
        while waiting:
            value = waiting.pop(0)
            if value in seen:
                continue
            seen.add(value)
            if (own := self.nodes.get(value.name or "")) is not None:
                yield own
            node = value.producer()
            if value is not core and node is not None:
                waiting += [each for each in node.inputs if each is not None]

    def _left_out(self, pair: _Pair, matching: Matching) -> ir.Node | None:
        """Return a node whose operand the form has in its place, under its name; alike operators match by mistake.

        source: y = Add(a, d), a = Add(b, c)        form: a = Add(b, c) in the place of y: a does not match b
        """
        waiting, found = [pair], None
        for _ in range(_UPWARDS):
            waiting = [reader for each in waiting for reader in matching.readers.get(each, ())]
            for value, original in waiting:
                own, named = self.owner(original.name or ""), self._named(value)
                # Operators that only move axes are in neither graph.
                if own is None or named is None or own.op_type in _MOVES:
                    continue
                is_read = named in own.predecessors()
                if is_read and named not in self.between(self._source.head(original).core.value, original):
                    found = own
        return found

    def _named(self, value: ir.Value) -> ir.Node | None:
        """Return the model's node that has the name of a value of the form."""
        return self.nodes.get(self._label(value).partition("'")[2].rstrip("'"))

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
            users = [user for each in waiting for user, _ in each.uses() if user.op_type in _MOVES]
            if (found := next((user for user in users if user.op_type in ops), None)) is not None:
                return found
            waiting = [user.outputs[0] for user in users]
        return None


def _last(chain: Sequence[ir.Node], ops: frozenset[str]) -> ir.Node | None:
    return next((node for node in chain if node.op_type in ops), None)


def _is_added(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last == _LAID or any(each in last for each in _ADDED)


def _factors(ours: Array, theirs: Array, half: Array, axis: int) -> Array | None:
    """Return the factor of each channel between two weights; None where they differ by more than that."""
    if ours.shape != theirs.shape:
        return None
    first, second, slack = (
        np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (ours, theirs, half)
    )
    squares = np.square(second).sum(1)
    factors = np.where(squares > 0, (first * second).sum(1) / np.where(squares > 0, squares, 1), 1.0)
    off = np.abs(first - factors[:, None] * second)
    return factors if (off <= slack + _UNIFORM * np.abs(theirs).max(initial=0.0)).all() else None
