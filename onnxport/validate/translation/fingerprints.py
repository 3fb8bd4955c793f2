"""Numbers that are the same where two values compute the same, but for constants."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.operators import COMMUTATIVE, Operand
from onnxport.validate.translation.rounding_bounds import Rounded

_DEPTH = 4  # operators before a value that tell what it resembles


class Fingerprints:
    """What values compute, constants and element-wise functions left out, as numbers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[ir.Value, int] = {}
        for node in graph.model.graph:  # operands first, so that nothing recurses deeply
            for value in node.outputs:
                self.value(value)

    def value(self, value: ir.Value) -> int:
        if value not in self._known:
            core = self._graph.head(value).core
            shape = core.weight.values.shape if core.weight is not None else ()
            settings = tuple(sorted((name, str(each)) for name, each in core.attributes.items()))
            operands: Sequence[int] = [self.operand(each) for each in core.operands]
            if core.op in COMMUTATIVE:
                operands = sorted(operands)
            self._known[value] = hash((core.op, shape, settings, tuple(operands)))
        return self._known[value]

    def operand(self, operand: Operand) -> int:
        if operand is None:
            return 0
        return 1 if isinstance(operand, Rounded) else self.value(operand)

    def likeness(self, operand: Operand, other: Operand, prints: Fingerprints) -> int:
        """Return how many operators from an operand back are those of an operand of another graph."""
        if not (isinstance(operand, ir.Value) and isinstance(other, ir.Value)):
            return _DEPTH if type(operand) is type(other) else 0
        for depth in reversed(range(_DEPTH)):
            if self._near(operand, depth) == prints._near(other, depth):
                return depth + 1
        return 0

    def _near(self, operand: Operand, depth: int) -> int:
        if not isinstance(operand, ir.Value):
            return self.operand(operand)
        core = self._graph.head(operand).core
        shape = core.weight.values.shape if core.weight is not None else ()
        before = [self._near(each, depth - 1) for each in core.operands] if depth else []
        return hash((core.op, shape, tuple(sorted(before) if core.op in COMMUTATIVE else before)))
