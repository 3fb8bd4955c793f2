"""The operator graph of a model file, the same for every format: nodes, and the tensors between them.

Readers of `.onnx`, `.ort` and `.tflite` fill it without reading weights. An `.mlpackage` has a model of its own
(formats/mlpackage).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from onnxport.formats.artifact import Dim

UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value between nodes, or an initializer. Two are the same only if they are one object."""

    name: str  # empty for a value without a name
    dtype: str = UNKNOWN  # NumPy's name of its element type, or "unknown"
    shape: tuple[Dim, ...] | None = None  # its dimensions; None where not even the rank is known
    is_constant: bool = False  # its elements are in the file
    # The same, but a caller may replace them: an initializer that is a graph input as well.
    is_preset: bool = False
    is_quantized: bool = False  # it has a scale of its own (TFLite)
    # The scale and zero point of all its elements; scale 0 where it has none, or one per channel.
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)

    @property
    def size(self) -> int:
        """The number of elements; an open dimension counts as 1."""
        return prod(dim for dim in self.shape or () if isinstance(dim, int))


def format_shape(shape: Iterable[Dim] | None) -> str:
    """Return "[1, ?, 3]", or "of unknown rank"."""
    if shape is None:
        return "of unknown rank"
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


@dataclass(eq=False)
class Node:
    """A node of a graph."""

    op: str
    name: str = ""  # as in the file; empty where it has none
    domain: str = ""
    # The opset that introduced this form of the operator; in a `.tflite` file the operator's own version.
    version: int = 1
    # inputs, outputs: None for one that is left out.
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor | None, ...] = ()
    # Numbers, strings and tuples of them; a tensor as a `Tensor`.
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # The graphs that it runs, by the name of the attribute that holds them (If, Loop, Scan).
    bodies: Mapping[str, OperatorGraph] = field(default_factory=dict)
    # producers, consumers: the nodes of the same graph that it reads from and that read from it;
    # `OperatorGraph.link` fills them.
    producers: list[Node] = field(default_factory=list)
    consumers: list[Node] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Its name, or its first output's, as Netron shows it; else its operator."""
        return self.name or next(filter(None, self.output_names), self.op)

    @property
    def qualified(self) -> str:
        """The operator, with its domain unless that is ONNX's own: "com.microsoft::FusedConv"."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of its inputs; empty for one that is left out."""
        return tuple(each.name if each else "" for each in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of its outputs; empty for one that is left out."""
        return tuple(each.name if each else "" for each in self.outputs)

    def reads(self) -> Iterator[Tensor]:
        """Yield its inputs, then what its bodies read from the graphs around them."""
        yield from filter(None, self.inputs)
        for body in self.bodies.values():
            yield from body.captured()


@dataclass(eq=False)
class OperatorGraph:
    """A graph: nodes in the order of the file."""

    nodes: list[Node]
    inputs: tuple[Tensor, ...] = ()  # what a caller feeds; without initializers
    outputs: tuple[Tensor, ...] = ()
    # Its initializers, preset ones included; tensors with data in a `.tflite` file.
    constants: tuple[Tensor, ...] = ()
    opset: int = 0  # of ONNX's own domain; 0 in a `.tflite` file

    def graphs(self) -> Iterator[OperatorGraph]:
        """Yield itself and the graphs inside its nodes."""
        yield self
        for node in self.nodes:
            for body in node.bodies.values():
                yield from body.graphs()

    def all_nodes(self) -> Iterator[Node]:
        """Yield its nodes, then those of the graphs inside them."""
        for graph in self.graphs():
            yield from graph.nodes

    def walk(self) -> Iterator[Node]:
        """Yield all nodes, each before those of its bodies."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.walk()

    def captured(self) -> Iterator[Tensor]:
        """Yield what the graph reads from the graphs around it."""
        own = {*self.inputs, *self.constants, *(each for node in self.nodes for each in node.outputs)}
        for node in self.nodes:
            yield from (each for each in node.reads() if each not in own)
        yield from (each for each in self.outputs if each not in own)

    def link(self) -> OperatorGraph:
        """Fill `producers` and `consumers` of all nodes, those of bodies included."""
        for graph in self.graphs():
            made = {each: node for node in graph.nodes for each in node.outputs}
            for node in graph.nodes:
                node.consumers = []
            for node in graph.nodes:
                node.producers = list(dict.fromkeys(made[each] for each in node.reads() if each in made))
                for producer in node.producers:
                    producer.consumers.append(node)
        return self
