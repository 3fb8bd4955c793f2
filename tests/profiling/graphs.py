"""Graphs by hand: "name op(in, in) -> out, out" a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onnxport.profiling.graphs import Graph, Node
from onnxport.profiling.origins import origins

_LINE = re.compile(r"(?:(\S+)\s+)?(\w+)\((.*?)\)\s*->\s*(.*)")


def graph(
    text: str,
    inputs: str = "x",
    constants: str = "w b w2 b2",
    bodies: Mapping[str, Sequence[Graph]] | None = None,
) -> Graph:
    nodes = []
    for line in filter(None, map(str.strip, text.splitlines())):
        found = _LINE.fullmatch(line)
        assert found is not None, line
        name, op, given, made = found.groups()
        held = tuple((bodies or {}).get(name or "", ()))
        nodes.append(Node(name or "", op, _names(given), _names(made), held))
    return Graph(tuple(nodes), frozenset(inputs.split()), frozenset(constants.split()))


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",")) if text.strip() else ()


def told(executed: Graph, model: Graph) -> dict[str, list[str]]:
    """The names of each executed node's sources."""
    found = origins(executed, model)
    return {node.shown: [source.shown for source in found[id(node)]] for node in executed.walk()}
