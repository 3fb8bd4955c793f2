"""The reading of a Loop node, whatever the target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import onnx_ir as onnx

from onnxport.converters.driver import Scope
from onnxport.converters.lowering import NodeView, TargetValue, known_shape

V = TypeVar("V", bound=TargetValue)  # a target's value


class LoopNode(Generic[V]):
    """A Loop: its body, its trip count and condition, and the state before the first step.

    Attributes:
        limit: the trip count.
        target: the format's name, for refusals.
    """

    target: str

    def __init__(self, node: NodeView[V]) -> None:
        self.node = node
        self.body: onnx.Graph = node.attribute("body")
        self.limit, self.condition = node.optional(0), node.optional(1)
        if self.limit is None and not self.stops:
            node.unsupported("has no end: neither a trip count nor a condition")
        self.initial = node.rest(2)

    @cached_property
    def stops(self) -> bool:
        """Return whether the condition may ever be false."""
        known = None if self.condition is None else self.condition.constant
        if self.condition is not None and (known is None or not known.all()):
            return True
        value = _copy_source(self.body.outputs[0])
        return value is not self.body.inputs[1] and not self.is_true(value)

    def is_true(self, value: onnx.Value) -> bool:
        """Return whether a condition in the body is a constant that holds."""
        return value.const_value is not None and bool(value.const_value.numpy().all())

    @property
    def states(self) -> list[onnx.Value]:
        """The state at the start of a step, in the body."""
        return list(self.body.inputs[2:])

    @property
    def rows(self) -> list[onnx.Value]:
        """The body's results that the loop collects."""
        return list(self.body.outputs[1 + len(self.initial) :])

    def shape(self, value: onnx.Value) -> tuple[int | None, ...]:
        """Return the shape of an input or output of the body, None where a dimension is open."""
        if value.shape is None:
            self.node.unsupported(
                f"the number of dimensions of {value.name!r} in its body is not known, "
                "or changes from step to step"
            )
        return known_shape(value)

    def dtype(self, value: onnx.Value) -> np.dtype[Any]:
        if value.dtype is None or value.dtype == onnx.DataType.STRING:
            self.node.unsupported(f"{value.name!r} in its body has no type that {self.target} carries")
        return np.dtype(value.dtype.numpy())

    def lower_body(self, scope: Scope[V], visible: Mapping[onnx.Value, V]) -> tuple[V, list[V], list[V]]:
        """Lower a step; returns its condition, the next state and the rows."""
        results = [value for value in scope.lower(self.body, visible) if value is not None]
        if len(results) < len(self.body.outputs):
            self.node.unsupported("its body has refused nodes, or results that are not tensors")
        count = 1 + len(self.initial)
        for value, before in zip(results[1:count], self.states, strict=True):
            if value.rank != len(self.shape(before)):
                self.node.unsupported(f"{before.name!r} in its body changes its number of dimensions")
        return results[0], results[1:count], results[count:]


def _copy_source(value: onnx.Value) -> onnx.Value:
    """Return the value that a chain of Identity copies."""
    while (producer := value.producer()) is not None and producer.op_type == "Identity":
        assert producer.inputs[0] is not None
        value = producer.inputs[0]
    return value
