"""Shapes in and behind Loop, which ONNX's inference does not follow: a state may change its size in every step.

At first no size is assumed to change. A dimension for which the body returns another size becomes open, until the
assumptions and the inferred results agree.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxport.formats.artifact import Dim
from onnxport.formats.model import Model, dims_of

Dims = list[Dim]


class LoopShapes:
    """The assumed dimensions of each loop's states; `loops` is empty for a model without."""

    def __init__(self, model: Model) -> None:
        self.loops = [
            node
            for node in model.graph.all_nodes()
            if node.op_type == "Loop" and node.domain in ("", "ai.onnx")
        ]
        self._states: dict[ir.Value, Dims | None] = {}
        self._conditions: dict[
            ir.Node, ir.Shape | None
        ] = {}  # shapes of computed ones, after the first inference
        self._changing: set[ir.Value] = set()  # not even the number of dimensions stays

    def write(self) -> None:
        """Write the assumed shapes into the graphs, for the next inference."""
        for loop in self.loops:
            body = loop.attributes["body"].as_graph()
            number, condition = body.inputs[:2]
            number.shape = ir.Shape([])
            # ONNX's inference compares it with the outer one, of which exporters make a vector of one.
            outer = loop.inputs[1]
            known = self._conditions.get(loop) if outer is None or outer.shape is None else outer.shape
            condition.shape = (
                ir.Shape([]) if outer is None or (loop in self._conditions and known is None) else known
            )
            for index, value in enumerate(body.inputs[2:]):
                dims = self._states.get(value)
                source = loop.inputs[2 + index]
                value.shape = None if dims is None else ir.Shape(dims)
                if value.dtype is None and source is not None and source.dtype is not None:
                    value.dtype = source.dtype
                if dims is not None and index < len(loop.outputs):
                    own = _step_symbol(value)
                    result = loop.outputs[index]
                    # The state after the last step may have another size than the one before.
                    result.shape = ir.Shape(
                        f"{result.name}.{axis}" if dim == own(axis) else dim for axis, dim in enumerate(dims)
                    )

    def update(self) -> bool:
        """Update the assumptions from the inferred results; return whether one was wrong."""
        changed = False
        for loop in self.loops:
            outer = loop.inputs[1]
            self._conditions[loop] = None if outer is None else outer.shape
            body = loop.attributes["body"].as_graph()
            for before, value, after in zip(loop.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False):
                dims = self._join(before, value, after)
                changed |= value not in self._states or dims != self._states[value]
                self._states[value] = dims
        return changed

    def _join(self, before: ir.Value | None, value: ir.Value, after: ir.Value) -> Dims | None:
        """Return the dimensions that hold before the first step and after any; None if the rank changes."""
        if before is None or before.shape is None or value in self._changing:
            return None
        dims, known, own = list(dims_of(before)), self._states.get(value), _step_symbol(value)
        if known is None:
            return [own(axis) if dim is None else dim for axis, dim in enumerate(dims)]
        result: Dims = list(dims_of(after)) if after.shape is not None else [None] * len(dims)
        if not len(known) == len(dims) == len(result):
            self._changing.add(value)
            return None
        return [
            ours if ours == first == last else own(axis)
            for axis, (ours, first, last) in enumerate(zip(known, dims, result, strict=True))
        ]


def _step_symbol(value: ir.Value) -> Callable[[int], str]:
    """Name the dimensions of a state that change from step to step."""
    return lambda axis: f"{value.name}.step.{axis}"
