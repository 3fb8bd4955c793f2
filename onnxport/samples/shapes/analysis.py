"""One pass of shape inference over a graph, for all candidates at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.samples.shapes.fact import UNKNOWN, Fact, Size, of_constant, size

# Computes the facts of a node's outputs.
Rule = Callable[["Site"], Iterable[Fact]]

# Larger constants are weights: only their sizes matter.
_WEIGHT = 65536


@dataclass(frozen=True)
class Constraint:
    """What one node demands.

    Attributes:
        node: its name, or its first output's where it has none.
        op: its operator.
        text: the demand, in words.
        holds: per candidate.
    """

    node: str
    op: str
    text: str
    holds: Array


class Sizes:
    """The sizes of the open dimensions, as far as they are assigned or follow from demands.

    Args:
        assigned: symbol -> candidates.
    """

    def __init__(self, assigned: Mapping[str, Array]) -> None:
        self.known: dict[str, Array] = dict(assigned)
        self._same: dict[str, str] = {}
        self.constraints: list[Constraint] = []
        self.suggestions: dict[str, Array] = {}
        self.least: dict[str, Array] = {}  # symbol -> the smallest size that constant indices allow
        self.origins: dict[str, str] = {}  # symbol -> the node that decided it
        self.changes = 0

    def root(self, symbol: str) -> str:
        """Return the symbol that stands for all that equal this one."""
        while symbol in self._same:
            symbol = self._same[symbol]
        return symbol

    def read(self, dim: Size) -> Size:
        """Return what is known of a size now."""
        if not isinstance(dim, str):
            return dim
        root = self.root(dim)
        return self.known.get(root, root)

    def bind(self, symbol: str, to: Size, node: str = "") -> None:
        """Let a free symbol equal a size or another symbol, because of a node."""
        symbol, to = self.root(symbol), self.read(to)
        if to is None or symbol in self.known or (isinstance(to, str) and to == symbol):
            return
        if isinstance(to, str):
            self._same[symbol] = to
        else:
            self.known[symbol] = to
        self.origins[symbol] = node
        self.changes += 1

    def suggest(self, symbol: str, to: Array) -> None:
        """Note a size that a symbol may have where nothing decides it."""
        self.suggestions.setdefault(self.root(symbol), to)

    def need(self, symbol: str, least: Array) -> None:
        """Note a size below which a symbol cannot be."""
        root = self.root(symbol)
        self.least[root] = np.maximum(self.least.get(root, 1), least)


class Site:
    """A node while a rule looks at it.

    Attributes:
        node: the node.
        facts: of its inputs; UNKNOWN for one that is left out.
    """

    def __init__(self, node: ir.Node, facts: list[Fact], sizes: Sizes) -> None:
        self.node, self.facts, self.sizes = node, facts, sizes

    def fact(self, index: int) -> Fact:
        """Return what is known of an input; UNKNOWN where the node has no such input."""
        return self.facts[index] if index < len(self.facts) else UNKNOWN

    def has(self, index: int) -> bool:
        """Return whether the node has this input."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def dims(self, index: int) -> tuple[Size, ...] | None:
        """Return the sizes of an input, symbols replaced by what they equal."""
        dims = self.fact(index).dims
        return None if dims is None else tuple(self.sizes.read(dim) for dim in dims)

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def integers(self, name: str) -> list[int] | None:
        """Return an attribute of integers; None where it is absent."""
        attribute = self.node.attributes.get(name)
        return None if attribute is None else [int(each) for each in attribute.as_ints()]

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_string()

    def require(self, holds: Array | bool, text: str) -> None:
        """Note a demand of this node."""
        mask = np.atleast_1d(np.asarray(holds))
        if not mask.all():
            name = self.node.name or self.node.outputs[0].name or ""
            self.sizes.constraints.append(Constraint(name, self.node.op_type, text, mask))

    def equal(self, a: Size, b: Size, text: str) -> Size:
        """Demand that two sizes are equal; a free symbol takes the other's size."""
        a, b = self.sizes.read(a), self.sizes.read(b)
        if a is None or b is None:
            return a if b is None else b
        node = f"{self.node.op_type} {self.node.name or self.node.outputs[0].name!r}"
        if isinstance(a, str):
            self.sizes.bind(a, b, node)
            return b
        if isinstance(b, str):
            self.sizes.bind(b, a, node)
            return a
        self.require(a == b, text)
        return a

    def broadcast(self, a: Size, b: Size) -> Size:
        """Return the size that two sizes broadcast to; a free symbol takes the other's size."""
        a, b = self.sizes.read(a), self.sizes.read(b)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            self.require((a == b) | (a == 1) | (b == 1), "sizes that broadcast")
            return np.where(a == 1, b, a)
        first, second = (a, b) if isinstance(a, np.ndarray) else (b, a)
        if isinstance(first, np.ndarray):
            if (first == 1).all():
                return second
            return self.equal(second, first, "") if isinstance(second, str) else first
        return self.equal(a, b, "") if isinstance(a, str) and isinstance(b, str) else None

    def broadcast_all(self, *shapes: tuple[Size, ...] | None) -> tuple[Size, ...] | None:
        """Return the shape that several shapes broadcast to; None where a rank is unknown."""
        if any(shape is None for shape in shapes):
            return None
        known = [shape for shape in shapes if shape is not None]
        rank = max(map(len, known), default=0)
        aligned = [(size(1),) * (rank - len(shape)) + tuple(shape) for shape in known]
        result = aligned[0]
        for other in aligned[1:]:
            result = tuple(self.broadcast(a, b) for a, b in zip(result, other, strict=True))
        return result


def infer(
    graph: ir.Graph,
    rules: Mapping[str, Rule],
    inputs: Mapping[str, Fact],
    sizes: Sizes,
    constants: dict[int, Fact] | None = None,
) -> dict[int, Fact]:
    """Return the fact of every value of the main graph, by `id`.

    Args:
        rules: operator -> rule; other operators give what the file declares.
        inputs: graph input -> fact.
        constants: of the graph, by `id`; filled here, for the next pass.
    """
    facts = {id(value): inputs[value.name or ""] for value in graph.inputs if value.name in inputs}
    known = constants if constants is not None else {}

    def fact_of(value: ir.Value | None) -> Fact:
        if value is None:
            return UNKNOWN
        if id(value) in facts:
            return facts[id(value)]
        if id(value) not in known:
            known[id(value)] = _constant_fact(value)
        return known[id(value)]

    for node in graph:
        if node.op_type == "Constant":
            continue
        rule = rules.get(node.op_type)
        site = Site(node, [fact_of(value) for value in node.inputs], sizes)
        found = list(rule(site)) if rule is not None else []
        for index, value in enumerate(node.outputs):
            facts[id(value)] = _with_declared(found[index] if index < len(found) else UNKNOWN, value)
    return facts


def _constant_fact(value: ir.Value) -> Fact:
    """Return the fact of a constant, or of a value of an outer graph."""
    tensor = constant_tensor(value)
    if tensor is None:
        return _with_declared(UNKNOWN, value)
    if tensor.size > _WEIGHT:
        return Fact(tuple(size(int(extent)) for extent in tensor.shape.numpy()))
    return of_constant(tensor.numpy())


def _with_declared(fact: Fact, value: ir.Value) -> Fact:
    """Return what the file declares of a value of which no rule knows the rank."""
    if fact.dims is not None or value.shape is None:
        return fact
    declared = tuple(size(dim) if isinstance(dim, int) else None for dim in value.shape)
    return Fact(declared, fact.elements, fact.span)
