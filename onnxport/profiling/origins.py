"""The nodes of a model that each executed node of a runtime computes, found by the names of values.

A runtime fuses nodes, but a value that leaves a fused node keeps its name. So an executed node computes what lies in
the model between its inputs and its outputs: backwards from an output up to values that other executed nodes compute.
Three cases need more:

- A value that only the runtime has (a convolution's, in blocks of channels) stands for a value of the model if its node
  has the name of the model's node or of that value, as ONNX Runtime names what it rewrites.
- A node that only moves or converts a value (`ReorderOutput`, an inserted `Cast`) counts for the node that needs it.
- Otherwise, nodes joined by unknown values share what all of them compute, split by operator if possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnxport.formats.graph import Node, OperatorGraph

# Runtimes insert these; they change a value's layout, type or place, not the value.
_MOVES = frozenset(
    "ReorderInput ReorderOutput Cast Transpose MemcpyFromHost MemcpyToHost Identity QuantizeLinear DequantizeLinear"
    " Reshape Unsqueeze Squeeze".split()
)
# ONNX Runtime puts these before the name of an operator that it fused or rewrote.
_PREFIXES = ("Fused", "QLinear", "Quantized", "DynamicQuantize", "N")
_BLOCKED = "_nchwc"  # a node of the blocked layout is named for its value, with this at the end

_PART = "/inner"  # our converter names values inside a node's lowering for the node, with this at the end

Sources = tuple[Node, ...]


def origins(executed: OperatorGraph, model: OperatorGraph) -> dict[Node, Sources]:
    """Return the nodes of `model` that each executed node computes, in their order; none if unknown.

    Values of `executed` have the model's names wherever the runtime kept them.
    """
    found: dict[Node, Sources] = {}
    _Scope(executed, model).fill(found)
    return found


class _Scope:
    """A graph of the runtime and the graph of the model that it executes."""

    def __init__(self, executed: OperatorGraph, model: OperatorGraph) -> None:
        self._executed, self._model = executed, model
        # With those of bodies: ONNX Runtime replaces an `If` with a constant condition by its body.
        nodes = [*model.nodes, *(node for node in model.walk())]
        self._makers: dict[str, Node] = {}
        for node in nodes:
            for name in filter(None, node.output_names):
                self._makers.setdefault(name, node)
        self._places = {node: place for place, node in enumerate(model.walk())}
        ends = (model.inputs, model.constants, executed.inputs, executed.constants)
        inputs, constants, self._given, self._constants = ({each.name for each in end} for end in ends)
        self._known = {*self._makers, *inputs, *constants}
        self._folded = constants | self._constants
        self._producers = {name: node for node in executed.nodes for name in node.output_names if name}
        self._consumers: dict[str, list[Node]] = {}
        for node in executed.nodes:
            for name in filter(None, node.input_names):
                self._consumers.setdefault(name, []).append(node)
        self._named = _unique_names(model.nodes)
        self._stands_for = self._resolve_values()
        made = {self._stands_for[name] for name in self._producers if name in self._stands_for}
        self._there = made | (self._constants & self._known) | inputs | constants

    def fill(self, found: dict[Node, Sources]) -> None:
        own = {node: self._nodes_between(node) for node in self._executed.nodes}
        for region in self._regions():
            _share(region, own)
        for node in self._executed.nodes:
            if not own[node]:
                # Our TFLite converter put the name of the model's node before those of its parts.
                whole = self._named.get(node.name.rpartition(_PART)[0])
                own[node] = self._sources_of_move(node, own) or (() if whole is None else (whole,))
        found |= own
        for node in self._executed.nodes:
            # Match bodies with those of the source that has the same ones.
            sources = (each.bodies for each in own[node])
            theirs = next((bodies for bodies in sources if bodies.keys() == node.bodies.keys()), {})
            for name, original in theirs.items():
                _Scope(node.bodies[name], original).fill(found)

    def _resolve_values(self) -> dict[str, str]:
        """Return the runtime's values with the model's values that they stand for."""
        stands = {name: name for name in (*self._producers, *self._given, *self._constants)}
        stands = {name: name for name in stands if name in self._known}
        for node in self._executed.nodes:
            for name, value in zip(node.output_names, self._values_by_name(node), strict=False):
                if name and value and name not in stands:
                    stands[name] = value
        moves = [node for node in self._executed.nodes if _is_move(node)]
        for node in moves:
            if node.input_names[0] in stands:
                stands.setdefault(node.output_names[0], stands[node.input_names[0]])
        for node in reversed(moves):
            if node.output_names[0] in stands and node.input_names[0] in self._producers:
                stands.setdefault(node.input_names[0], stands[node.output_names[0]])
        return stands

    def _values_by_name(self, node: Node) -> Sequence[str]:
        """Return the values that the outputs stand for, by the node's name."""
        value = node.name.rpartition(_BLOCKED)[0]
        if value in self._known:
            return (value,)
        source = self._named.get(node.name)
        return source.output_names if source is not None and _is_same_op(node.op, source.op) else ()

    def _nodes_between(self, node: Node) -> Sources:
        """Return the model's nodes between the inputs and the outputs of `node`."""
        # A value that no node here computes comes from the graph around.
        inputs = {
            self._stands_for.get(name, "" if name in self._producers else name)
            for name in node.input_names
            if name
        }
        outputs = {self._stands_for[name] for name in node.output_names if name in self._stands_for}
        outputs -= inputs  # values that only pass through
        within: set[Node] = set()
        waiting = [*outputs]
        while waiting:
            maker = self._makers.get(waiting.pop())
            if maker is None or maker in within:
                continue
            within.add(maker)
            waiting += [name for name in _names_read(maker) if name not in self._there and name not in inputs]
        nodes = self._sort(within)
        return self._keep_dependent(nodes, inputs) if "" not in inputs else nodes

    def _keep_dependent(self, nodes: Sources, inputs: Iterable[str]) -> Sources:
        """Return the `nodes` that depend on `inputs`; ONNX Runtime computed the others when it loaded the model."""
        seen = set(inputs) - self._folded
        kept = []
        for node in nodes:
            if not seen.isdisjoint(_names_read(node)):
                kept.append(node)
                seen.update(node.output_names)
        return tuple(kept) or nodes

    def _regions(self) -> list[list[Node]]:
        """Return groups of executed nodes that unknown values join."""
        region_of: dict[Node, list[Node]] = {}
        for name, producer in self._producers.items():
            if name in self._stands_for:
                continue
            merged: list[Node] = []
            for node in (producer, *self._consumers.get(name, ())):
                merged += [each for each in region_of.get(node, [node]) if each not in merged]
            for node in merged:
                region_of[node] = merged
        return list({id(region): region for region in region_of.values()}.values())

    def _sources_of_move(self, node: Node, own: Mapping[Node, Sources]) -> Sources:
        """Return the sources of the node for which `node` moves or converts a value."""
        if not _is_move(node):
            return ()
        before = self._producers.get(node.input_names[0])
        after = [each for each in self._consumers.get(node.output_names[0], ()) if own[each]]
        comes_in = node.input_names[0] in self._known and node.output_names[0] not in self._known
        if before is not None and own[before] and not (comes_in and after):
            return own[before]
        return own[after[0]] if after else ()

    def _sort(self, nodes: Iterable[Node]) -> Sources:
        real = [node for node in nodes if node.op != "Constant"]
        return tuple(sorted(real, key=lambda node: self._places[node]))


def _share(region: Sequence[Node], own: dict[Node, Sources]) -> None:
    together = list(dict.fromkeys(source for node in region for source in own[node]))
    for node in region:
        alike = tuple(source for source in together if _is_same_op(node.op, source.op))
        if alike or not _is_move(node):
            own[node] = alike or tuple(together)


def _names_read(node: Node) -> list[str]:
    """Return the names of what a node reads, its bodies included."""
    return [each.name for each in node.reads() if each.name]


def _unique_names(nodes: Iterable[Node]) -> dict[str, Node]:
    named: dict[str, Node | None] = {}
    for node in nodes:
        named[node.name] = None if node.name in named else node
    return {name: node for name, node in named.items() if name and node is not None}


def _is_move(node: Node) -> bool:
    return node.op in _MOVES and len(node.outputs) == 1 and bool(node.inputs and node.inputs[0])


def _is_same_op(executed: str, source: str) -> bool:
    return executed == source or any(executed == f"{prefix}{source}" for prefix in _PREFIXES)
