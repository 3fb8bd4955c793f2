"""The limit on the parts of an ONNX file: two bytes can be a node, which takes a kilobyte in memory.

Model-local functions that call each other can stand for any number of nodes, because conversion inlines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx

from onnxport.core import limits
from onnxport.core.errors import InputError


def check_parts(proto: onnx.ModelProto, path: Path) -> None:
    """Raise InputError for more than the limit `parts` or a function that calls itself."""
    functions = {(each.domain, each.name): each.node for each in proto.functions}
    sizes: dict[tuple[str, str], int] = {}
    for caller in _callees_first(functions, path):
        sizes[caller] = _count_nodes(functions[caller], sizes)
    total = _count_graph(proto.graph, sizes) + sum(sizes.values())
    # Reading 500,000 takes 16 s and 320 MB; of 65 real models the largest has 2,763.
    most = limits.limit("parts")
    if total > most:
        inlined = " with its functions inlined" if functions else ""
        raise InputError(
            f"{path} is too large to be read",
            why=f"it has {total:,} nodes, attributes and weights{inlined}; at most {most:,} are read",
            fix="export it with its loops, not unrolled, or divide it: onnxport extract in a smaller model; "
            + limits.advice("parts", total),
        )


_Functions = Mapping[tuple[str, str], Iterable[onnx.NodeProto]]


def _callees_first(functions: _Functions, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the functions, each after those that it calls; InputError where a function calls itself."""
    done: set[tuple[str, str]] = set()
    for first in functions:
        way = [first]
        while way:
            missing = [
                each for each in _callees(functions[way[-1]]) if each in functions and each not in done
            ]
            if not missing:
                last = way.pop()
                if last not in done:
                    done.add(last)
                    yield last
                continue
            if missing[0] in way:
                raise InputError(
                    f"{path} is not a valid ONNX model",
                    why=f"its function {missing[0][1]!r} calls itself",
                    fix="write the repetition as a Loop",
                )
            way.append(missing[0])


def _callees(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        yield node.domain, node.op_type
        for graph in bodies(node):
            yield from _callees(graph.node)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _count_graph(graph: onnx.GraphProto, sizes: dict[tuple[str, str], int]) -> int:
    values = len(graph.input) + len(graph.output) + len(graph.value_info) + len(graph.initializer)
    return values + len(graph.sparse_initializer) + _count_nodes(graph.node, sizes)


def _count_nodes(nodes: Iterable[onnx.NodeProto], sizes: dict[tuple[str, str], int]) -> int:
    total = 0
    for node in nodes:
        total += 1 + len(node.attribute) + sizes.get((node.domain, node.op_type), 0)
        total += sum(_count_graph(body, sizes) for body in bodies(node))
    return total
