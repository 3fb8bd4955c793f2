"""A canonical order and naming of a graph: tf2onnx iterates over sets, so its files vary."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import onnx

_COUNTER = re.compile(r"__\d+")


def hash_by_number() -> None:
    """Make sets of tf2onnx's nodes keep one order: hash a node by its creation, not by its address.

    The order decides which of two equal nodes stays. Sets of names keep theirs by a fixed PYTHONHASHSEED.
    """
    from tf2onnx.graph import Node

    if Node.__hash__ is not object.__hash__:
        return
    made, numbers = Node.__init__, itertools.count()

    def numbered(self: Any, *args: Any, **kwargs: Any) -> None:
        self.number = next(numbers)
        made(self, *args, **kwargs)

    Node.__init__, Node.__hash__ = numbered, lambda self: self.number


def skip_copies_of_constants() -> None:
    """Make tf2onnx's optimizers write no protobuf of a constant: each of their passes kept a copy of all weights.

    Nobody reads it: the file's constants come from the nodes' attributes. Protobuf frees no part of a message, so that
    the copies of 50 MB of weights took 3 GB.
    """
    from tf2onnx.graph import Node

    update = Node.update_proto
    if getattr(update, "skips_constants", False):
        return

    def update_proto(self: Any, external_tensor_storage: Any = None) -> None:
        if not self.is_const():
            update(self, external_tensor_storage)

    update_proto.skips_constants = True  # type: ignore[attr-defined]
    Node.update_proto = update_proto


def canonicalize(graph: onnx.GraphProto) -> None:
    """Order nodes as the outputs reach them; name constants and numbered names by position.

    Names of TensorFlow's scopes stay. Names that tf2onnx counted (Transpose__123) are counted again. A constant is
    named for its first reader, since tf2onnx keeps any of equal constants.
    """
    _order(graph)
    names = {port.name: port.name for port in (*graph.input, *graph.output)}
    _rename(graph, names, set(names))


def _rename(graph: onnx.GraphProto, names: dict[str, str], taken: set[str]) -> None:
    """Rename values; `names` maps values around the graph and at its border."""
    for port in graph.input:
        port.name = names.setdefault(port.name, _unique(port.name, taken))
    constants = {each.name: each for each in graph.initializer}
    read: list[onnx.TensorProto] = []
    for node in graph.node:
        node.name = _unique(node.name or node.op_type, taken)
        for place, name in enumerate(_inputs_of(node)):
            if name in constants and name not in names:
                names[name] = _unique(f"{node.name}/{place}", taken)
                read.append(constants[name])
        for place, name in enumerate(node.output):
            if name:
                node.output[place] = names.setdefault(name, _unique(name, taken))
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
        for body in _bodies(node):
            _rename(body, dict(names), taken)
    for port in graph.output:
        if port.name in constants and port.name not in names:
            names[port.name] = port.name
        port.name = names.get(port.name, port.name)
    found = {each.name for each in read}
    read += [each for name, each in sorted(constants.items()) if name in names and name not in found]
    kept = [onnx.TensorProto.FromString(each.SerializeToString()) for each in read]
    for each in kept:
        each.name = names[each.name]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _unique(name: str, taken: set[str]) -> str:
    base = chosen = _COUNTER.sub("", name)
    count = 0
    while chosen in taken:
        count += 1
        chosen = f"{base}__{count}"
    taken.add(chosen)
    return chosen


def _order(graph: onnx.GraphProto) -> None:
    made = {output: node for node in graph.node for output in node.output}
    done: set[int] = set()
    ordered: list[onnx.NodeProto] = []
    waiting = [
        (node, False) for node in reversed([made[port.name] for port in graph.output if port.name in made])
    ]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in done:
            continue
        if ready:
            done.add(id(node))
            ordered.append(node)
            continue
        waiting.append((node, True))
        waiting.extend((made[name], False) for name in reversed(list(_inputs_of(node))) if name in made)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(nodes)
    for node in graph.node:
        for body in _bodies(node):
            _order(body)


def _inputs_of(node: onnx.NodeProto) -> Iterator[str]:
    """Return the inputs of a node, and the outer values that its subgraphs read."""
    yield from node.input
    for body in _bodies(node):
        for inner in body.node:
            yield from _inputs_of(inner)
        yield from (port.name for port in body.output)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in sorted(node.attribute, key=lambda each: each.name):
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
