"""Which node of one model is which of another: by the names of values and nodes, then by data flow.

Names come first, since most tools keep them. Then a node is paired with one of the same operator that reads what its
partner reads, or whose result the same paired node reads at the same place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable

import onnx_ir as ir

from onnxport.inspection.comparison.view import Origin, View

Pairs = dict[ir.Node, ir.Node]


def pair_nodes(first: View, second: View) -> Pairs:
    """Return the nodes of `first` with their partners in `second`; some of either have none."""
    pairs = _Pairing(first, second)
    pairs.by_names()
    # Constants that differ hide a partner only while there are others to choose from.
    for key in (lambda constant: constant.key, lambda constant: str(constant.numbers.shape)):
        while pairs.by_inputs(key) or pairs.by_readers():
            pass
    return pairs.pairs


class _Pairing:
    def __init__(self, first: View, second: View) -> None:
        self.first, self.second = first, second
        self.pairs: Pairs = {}
        self._taken: set[ir.Node] = set()

    def _add(self, one: ir.Node, other: ir.Node | None) -> bool:
        if other is None or one in self.pairs or other in self._taken or _kind(one) != _kind(other):
            return False
        self.pairs[one] = other
        self._taken.add(other)
        return True

    def by_names(self) -> None:
        """Pair nodes that give values of one name, then nodes of one name."""
        giving = {value.name: node for node in self.second.nodes for value in node.outputs if value.name}
        for node in self.first.nodes:
            for value in node.outputs:
                self._add(node, giving.get(value.name or ""))
        count = Counter(node.name for node in self.second.nodes if node.name)
        named = {node.name: node for node in self.second.nodes if node.name and count[node.name] == 1}
        for node in self.first.nodes:
            self._add(node, named.get(node.name or ""))

    def by_inputs(self, key: Callable[[Origin], Hashable]) -> bool:
        """Pair nodes that read the same; of several that do, in their order."""
        waiting = defaultdict(list)
        names = {node: number for number, node in enumerate(self.second.nodes)}
        for node in self.second.nodes:
            if node not in self._taken and (read := self._read(node, self.second, names, key)) is not None:
                waiting[read].append(node)
        names = {node: names[other] for node, other in self.pairs.items()}
        found = False
        for node in self.first.nodes:
            if node not in self.pairs and (read := self._read(node, self.first, names, key)) is not None:
                found |= bool(waiting[read]) and self._add(node, waiting[read].pop(0))
        return found

    @staticmethod
    def _read(
        node: ir.Node, view: View, names: dict[ir.Node, int], key: Callable[[Origin], Hashable]
    ) -> Hashable | None:
        """Return what a node reads, by the numbers of paired nodes; None if one of these has no pair."""
        read: list[Hashable] = [_kind(node)]
        for origin in view.origins(node):
            producer = None if origin is None else origin.value.producer()
            if origin is None:
                read.append(None)
            elif origin.is_constant:
                read.append(("constant", key(origin)))
            elif producer is None:
                read.append(("input", origin.value.name))
            elif producer in names:
                read.append((names[producer], producer.outputs.index(origin.value)))
            else:
                return None
        return tuple(read)

    def by_readers(self) -> bool:
        """Pair the nodes behind the same output, or behind the same input of a pair."""
        found = False
        ends = zip(self.first.model.graph.outputs, self.second.model.graph.outputs, strict=False)
        read = [(self.first.origin(one), self.second.origin(other)) for one, other in ends]
        for node, partner in self.pairs.items():
            both = zip(self.first.origins(node), self.second.origins(partner), strict=False)
            read += [(one, other) for one, other in both if one is not None and other is not None]
        for mine, its in read:
            found |= self._behind(mine, its)
        return found

    def _behind(self, one: Origin, other: Origin) -> bool:
        producers = one.value.producer(), other.value.producer()
        return producers[0] is not None and self._add(producers[0], producers[1])


def _kind(node: ir.Node) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type
