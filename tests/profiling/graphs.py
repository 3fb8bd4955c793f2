"""Graphs by hand: "name op(in, in) -> out, out" a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.profiling.origins import origins

_LINE = re.compile(r"(?:(\S+)\s+)?(\w+)\((.*?)\)\s*->\s*(.*)")


def graph(
    text: str,
    inputs: str = "x",
    constants: str = "w b w2 b2",
    bodies: Mapping[str, Sequence[OperatorGraph]] | None = None,
) -> OperatorGraph:
    tensors: dict[str, Tensor] = {}

    def read(text: str, separator: str | None = None) -> tuple[Tensor, ...]:
        names = filter(None, map(str.strip, text.split(separator)))
        return tuple(tensors.setdefault(name, Tensor(name)) for name in names)

    nodes = []
    for line in filter(None, map(str.strip, text.splitlines())):
        found = _LINE.fullmatch(line)
        assert found is not None, line
        name, op, given, made = found.groups()
        inner = {str(place): each for place, each in enumerate((bodies or {}).get(name or "", ()))}
        nodes.append(Node(op, name or "", inputs=read(given, ","), outputs=read(made, ","), bodies=inner))
    return OperatorGraph(nodes, read(inputs), constants=read(constants))


def told(executed: OperatorGraph, model: OperatorGraph) -> dict[str, list[str]]:
    """The names of each executed node's sources."""
    found = origins(executed, model)
    return {node.label: [source.label for source in found[node]] for node in executed.walk()}
