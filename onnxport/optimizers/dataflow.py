"""The dependencies between values of a main graph; branches and bodies count with the node that has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import onnx_ir as ir
from onnx_ir.analysis import analyze_implicit_usage

from onnxport.formats.model import Model


class Dataflow:
    """The reads of each node of a main graph.

    Attributes:
        values: every value of the main graph by name.
        inputs: the run-time inputs, without initializers that IR 3 lists as inputs.
        varying: values that depend on a run-time input; all others are constants.
    """

    def __init__(self, model: Model) -> None:
        self.graph = model.graph
        self._captured = analyze_implicit_usage(model.graph)
        self.values: dict[str, ir.Value] = ir.convenience.create_value_mapping(
            model.graph, include_subgraphs=False
        )
        self.inputs = tuple(v for v in model.graph.inputs if v.name not in model.graph.initializers)
        self.varying = set(self.inputs)
        for node in model.graph:
            if any(value in self.varying for value in self.reads(node)):
                self.varying.update(node.outputs)

    def reads(self, node: ir.Node) -> list[ir.Value]:
        """Return the values of the main graph that a node reads, those captured by its graphs included."""
        read = [value for value in node.inputs if value is not None]
        for graph in _graphs(node):
            # A capture of an inner graph is one of all graphs around it.
            read += sorted(self._captured.get(graph, ()), key=lambda value: value.name or "")
            read += [value for value in graph.outputs if value.graph is self.graph]
        return read

    def ancestors(self, values: Iterable[ir.Value], stops: Collection[ir.Value] = ()) -> set[ir.Node]:
        """Return the nodes that compute `values`; those in front of `stops` do not count."""
        nodes, seen = set[ir.Node](), set(stops)
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            node = value.producer()
            if value in seen or node is None:
                continue
            seen.add(value)
            if node not in nodes:
                nodes.add(node)
                waiting += self.reads(node)
        return nodes

    def descendants(self, nodes: Iterable[ir.Node]) -> set[ir.Node]:
        """Return `nodes` and every node that depends on one of them."""
        found = set(nodes)
        made = {value for node in found for value in node.outputs}
        for node in self.graph:
            if node not in found and any(value in made for value in self.reads(node)):
                found.add(node)
                made.update(node.outputs)
        return found


def _graphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
