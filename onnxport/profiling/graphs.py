"""Graphs as the profile needs them, of a file or of what a runtime executes: operators and the names of values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxport.formats import ort_file
from onnxport.formats.ort_file import Table

# An attribute of these kinds holds a graph, or several (onnx.proto, AttributeProto.AttributeType).
_GRAPH, _GRAPHS = 5, 10


@dataclass(frozen=True)
class Node:
    """Attributes:
    name: as the file has it; may be empty.
    inputs, outputs: names of values; empty for one that is left out.
    bodies: of control flow, in the order of its attributes' names.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: tuple[Graph, ...] = ()

    @property
    def shown(self) -> str:
        """What Netron shows: a node without a name is called by its first output."""
        return self.name or next(filter(None, self.outputs), self.op)


@dataclass(frozen=True)
class Graph:
    """Attributes:
    nodes: in the order of the file.
    inputs: what comes in at run time.
    constants: values that are in the file.
    """

    nodes: tuple[Node, ...]
    inputs: frozenset[str] = frozenset()
    constants: frozenset[str] = field(default=frozenset(), repr=False)

    def walk(self) -> Iterator[Node]:
        """All nodes, each before those of its bodies."""
        for node in self.nodes:
            yield node
            for body in node.bodies:
                yield from body.walk()


def onnx_graph(path: Path) -> Graph:
    """The main graph of an `.onnx` file; its weights are not looked at."""
    import onnx

    return _of_proto(onnx.load(path, load_external_data=False).graph)


def _of_proto(graph: Any) -> Graph:
    constants = frozenset(
        each.name for each in (*graph.initializer, *(s.values for s in graph.sparse_initializer))
    )
    inputs = frozenset(each.name for each in graph.input) - constants
    nodes = []
    for node in graph.node:
        held = {each.name: [each.g] for each in node.attribute if each.type == _GRAPH}
        held |= {each.name: list(each.graphs) for each in node.attribute if each.type == _GRAPHS}
        bodies = tuple(_of_proto(body) for name in sorted(held) for body in held[name])
        nodes.append(Node(node.name, node.op_type, tuple(node.input), tuple(node.output), bodies))
    return Graph(tuple(nodes), inputs, constants)


def ort_graph(path: Path) -> Graph:
    """The main graph of an `.ort` file, which is what ONNX Runtime executes."""
    return _of_table(ort_file.read(path.read_bytes())["model"]["graph"])


def _of_table(graph: Table) -> Graph:
    constants = frozenset(_text(each["name"]) for each in graph.get("initializers", []))
    inputs = frozenset(map(_text, graph.get("inputs", []))) - constants
    return Graph(tuple(_node(each) for each in graph.get("nodes", [])), inputs, constants)


def _node(table: Table) -> Node:
    attributes = sorted(table.get("attributes", []), key=lambda each: _text(each["name"]))
    bodies = [
        body
        for each in attributes
        for body in (*each.get("graphs", []), *([each["g"]] if "g" in each else []))
    ]
    return Node(
        _text(table.get("name", b"")),
        _text(table["op_type"]),
        tuple(map(_text, table.get("inputs", []))),
        tuple(map(_text, table.get("outputs", []))),
        tuple(_of_table(body) for body in bodies),
    )


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else bytes(value).decode(errors="replace")
