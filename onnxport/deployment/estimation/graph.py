"""The graph that a data file is held against, whatever format it was read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from onnxport.formats.artifact import Dim


class Stored(Protocol):
    """A constant's elements, read when they are asked for."""

    def numpy(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value between nodes.

    Attributes:
        dtype: NumPy's name of its element type; "unknown" where inference does not tell.
        shape: its dimensions; None where not even the rank is known.
        stored: its elements, where it is a constant.
        is_preset: it has a value that a caller may replace.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    stored: Stored | None = None
    is_preset: bool = False

    @property
    def is_constant(self) -> bool:
        return self.stored is not None

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)


@dataclass(eq=False)
class Node:
    """A node as Netron shows it.

    Attributes:
        name: its own, or its first output's where it has none.
        version: the opset that brought the form of the operator which it has.
        inputs, outputs: None for one that is left out.
        parameters: the schema's names of inputs and outputs, and of their types, to the tensors; "X", "T".
        attributes: as plain values; those that hold graphs are in `bodies`. Defaults of the schema are filled in.
        bodies: the graphs that it runs (If, Loop, Scan).
        producers, consumers: the nodes of the same graph that it reads from and that read from it.
    """

    op: str
    domain: str
    name: str
    version: int
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    parameters: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bodies: tuple[Graph, ...] = ()
    producers: list[Node] = field(default_factory=list)
    consumers: list[Node] = field(default_factory=list)

    @property
    def qualified(self) -> str:
        """The operator as `inspect` writes it: with its domain where that is not ONNX's own."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def tensors(self, key: str) -> tuple[Tensor, ...]:
        """What `key` of a data file names (`table.Rule`); nothing where the node has no such parameter."""
        if key in ("inputs", "outputs", "all"):
            sides = (self.inputs if key != "outputs" else ()) + (self.outputs if key != "inputs" else ())
            return tuple(each for each in sides if each is not None)
        side, position = (self.outputs, key[4:]) if key.startswith("out ") else (self.inputs, key)
        if position.isdecimal():
            found = side[int(position)] if int(position) < len(side) else None
            return () if found is None else (found,)
        return self.parameters.get(key, ())


@dataclass(eq=False)
class Graph:
    """Nodes in an order in which they could run, each behind what it reads.

    Attributes:
        opset: of ONNX's own domain.
        outputs: names of its results.
    """

    nodes: list[Node]
    opset: int
    outputs: frozenset[str] = frozenset()

    def all_nodes(self) -> Iterator[Node]:
        """Its nodes and those of the graphs inside them."""
        for graph in self.graphs():
            yield from graph.nodes

    def graphs(self) -> Iterator[Graph]:
        """Itself and the graphs inside its nodes."""
        yield self
        for node in self.nodes:
            for body in node.bodies:
                yield from body.graphs()


def linked(nodes: list[Node]) -> list[Node]:
    """`nodes` of one graph, which know from now on who reads from whom."""
    made = {tensor.name: node for node in nodes for tensor in node.outputs if tensor is not None}
    for node in nodes:
        node.producers = list(dict.fromkeys(made[name] for name in _read(node) if name in made))
        for producer in node.producers:
            producer.consumers.append(node)
    return nodes


def _read(node: Node) -> Iterator[str]:
    """Names that a node reads, those that its bodies read from outside included."""
    yield from (tensor.name for tensor in node.inputs if tensor is not None)
    for body in node.bodies:
        for inner in body.nodes:
            yield from _read(inner)
        yield from body.outputs


def follows(tensor: Tensor, reader: Node) -> bool:
    """Whether `tensor`, which `reader` reads, follows from constants and sizes."""
    waiting, seen = [(tensor, reader)], set()
    while waiting:
        each, node = waiting.pop()
        if each.is_constant or each.is_preset or each in seen:
            continue
        seen.add(each)
        maker = next((maker for maker in node.producers if each in maker.outputs), None)
        if maker is None:
            return False
        if maker.op not in _SIZES:
            waiting += [(operand, maker) for operand in maker.inputs if operand is not None]
    return True


_SIZES = ("Shape", "Size")


def is_settled(node: Node) -> bool:
    """Whether all that `node` computes follows from constants and sizes."""
    read = [each for each in node.inputs if each is not None]
    return node.op in _SIZES or (bool(read) and all(follows(each, node) for each in read))
