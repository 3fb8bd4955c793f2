"""Loop: its body as a block of MIL's while_loop, its state and what it collects as carried variables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import onnx_ir as onnx

from onnxport.converters.coreml.builder import MilBuilder, wrap
from onnxport.converters.coreml.control.blocks import check_carried, emitted, entered, returned, widened
from onnxport.converters.coreml.control.loop_outputs import Rows, rows
from onnxport.converters.coreml.library import Var
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.loop_body import dtype_in_body, shape_in_body, unchanged
from onnxport.converters.lowering import NodeView

# The counter is an int32; a limit beyond it is none.
_FAR = int(np.iinfo(np.int32).max)


@lower("Loop")
def loop(node: NodeView[Value], mil: MilBuilder) -> None:
    """A graph run again and again on its own results, and rows that it adds at each step (ONNX Loop-21)."""
    _Loop(node, mil).run()


class _Loop:
    """One Loop: it carries a counter, whether it goes on, its states and its rows, in this order."""

    def __init__(self, node: NodeView[Value], mil: MilBuilder) -> None:
        self.node, self.mil = node, mil
        self.body: onnx.Graph = node.attribute("body")
        self.limit, self.condition = node.optional(0), node.optional(1)
        self.initial = node.rest(2)
        if self.limit is None and not self.stops:
            node.unsupported("has no end: neither a trip count nor a condition")
        for value, each in zip(self.initial, self.body.inputs[2:], strict=True):
            check_carried(node, value, each.name)
        self.shapes = [shape_in_body(self.node, each) for each in self.body.inputs[2:]]
        self.dtypes = [dtype_in_body(self.node, each, "Core ML") for each in self.body.inputs[2:]]
        self.rows: list[Rows] = [
            rows(mil, shape_in_body(self.node, each), dtype_in_body(self.node, each, "Core ML"), self.steps)
            for each in self.body.outputs[1 + len(self.initial) :]
        ]

    @cached_property
    def stops(self) -> bool:
        """Whether its condition may ever be false."""
        known = None if self.condition is None else self.condition.constant
        if self.condition is not None and (known is None or not known.all()):
            return True
        value = unchanged(self.body.outputs[0])
        is_true = value.const_value is not None and value.const_value.numpy().all()
        return value is not self.body.inputs[1] and not is_true

    @cached_property
    def bound(self) -> Var | int | None:
        """The number of steps that it takes at most."""
        if self.limit is None:
            return None
        if self.limit.constant is not None:
            count = int(self.limit.constant.item())
            return min(max(count, 0), _FAR)
        return self.mil.var(_scalar(self.mil, self.limit))

    @property
    def steps(self) -> Var | int | None:
        """The number of steps for which rows are to have room; None where it says nothing of how many there are."""
        if self.stops and not isinstance(self.bound, int):
            return None
        return self.bound

    def run(self) -> None:
        mil = self.mil
        if self.bound == 0:
            self._emit(self.initial, [])
            return
        starts = [mil.constant(np.array(0, np.int32))]
        if self.stops:
            started = self.condition or mil.constant(np.array(True))
            starts.append(_scalar(mil, started))
        starts += self.initial
        variables = [returned(mil, value) for value in starts]
        variables += [var for each in self.rows for var in each.start()]
        results = mil.while_loop(_cond=self._continues, _body=self._step, loop_vars=variables)
        values = results if isinstance(results, list) else [results]
        self._finish([next(iter(value.copies.values())) for value in values])

    def _finish(self, results: list[Var]) -> None:
        counter, _, states, collected = self._parts(results)
        values = [entered(var, dtype) for var, dtype in zip(states, self.dtypes, strict=True)]
        gathered = [
            each.finish(part, counter, may_stop=self.stops)
            for each, part in zip(self.rows, collected, strict=True)
        ]
        self._emit(values, gathered)

    def _emit(self, states: Sequence[Value], collected: Sequence[Value]) -> None:
        for index, value in enumerate((*states, *collected)):
            self.node.emit(value, index)
        if len(states) + len(collected) < self.node.output_count:
            self.node.unsupported(
                "collects nothing in no steps, and Core ML holds no tensor without elements"
            )

    def _parts(self, arguments: Sequence[Var]) -> tuple[Var, Var | None, list[Var], list[Var]]:
        """The counter, whether it goes on, the states, and the rows."""
        rest = iter(arguments)
        counter, goes_on = next(rest), next(rest) if self.stops else None
        states = [next(rest) for _ in self.initial]
        return counter, goes_on, states, list(rest)

    def _continues(self, *arguments: Var) -> Var:
        counter, goes_on, states, _ = self._parts(arguments)
        for var in arguments:
            widened(var, ())
        for var, shape in zip(states, self.shapes, strict=True):
            widened(var, shape)
        left = None
        if self.bound is not None:
            left = emitted(self.mil, "less", x=counter, y=self.bound)
        if goes_on is None or left is None:
            given = goes_on if left is None else left
            assert given is not None
            return emitted(self.mil, "identity", x=given)
        return emitted(self.mil, "logical_and", x=left, y=goes_on)

    def _step(self, *arguments: Var) -> list[Var]:
        mil = self.mil
        counter, _, states, collected = self._parts(arguments)
        results = self._lowered(counter, states)
        following = [emitted(mil, "add", x=counter, y=1)]
        if self.stops:
            following.append(returned(mil, _scalar(mil, results[0])))
        count = 1 + len(self.initial)
        for value, each, shape in zip(results[1:count], self.body.inputs[2:], self.shapes, strict=True):
            check_carried(self.node, value, each.name)
            if value.rank != len(shape):
                self.node.unsupported(f"{each.name!r} in its body changes its number of dimensions")
            following.append(returned(mil, value))
        for collector, part, value in zip(self.rows, collected, results[count:], strict=True):
            check_carried(self.node, value, "a row")
            following += [collector.add(part, value, counter)]
        return following

    def _lowered(self, counter: Var, states: Sequence[Var]) -> list[Value]:
        """The body's results on the state at the start of a step."""
        number, goes_on, *inputs = self.body.inputs
        visible = {number: wrap(counter), goes_on: self.mil.constant(np.array(True))}
        visible[number].dtype, visible[number].is_natural = np.dtype(np.int64), True
        for each, var, dtype in zip(inputs, states, self.dtypes, strict=True):
            visible[each] = entered(var, dtype)
        results = [value for value in self.mil.scope.lower(self.body, visible) if value is not None]
        if len(results) < len(self.body.outputs):
            self.node.unsupported("its body has nodes that are refused, or gives what is no tensor")
        return results


def _scalar(mil: MilBuilder, value: Value) -> Value:
    """A value of one element without axes."""
    if value.constant is not None:
        return mil.constant(value.constant.reshape(()))
    return mil.squeeze(x=value, axes=list(range(value.rank))) if value.rank else value
