"""Loop: its body as a function that TFLite's WHILE calls, its state and what it collects as carried tensors."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import onnx_ir as onnx

from onnxport.converters.loop_body import dtype_in_body, shape_in_body, unchanged
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.control.captures import captured, within
from onnxport.converters.tflite.control.functions import loop
from onnxport.converters.tflite.control.loop_state import Rows, State, rows
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar

# Steps of a loop that a trial run with made-up inputs may take.
_MANY = 10_000


@lower("Loop")
def loop_(node: TflNode, tfl: TflBuilder) -> None:
    """A graph run again and again on its own results, and rows that it adds at each step (ONNX Loop-21)."""
    _Loop(node, tfl).run()


class _Loop:
    """One Loop: what it carries, in the order in which its functions take it."""

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.node, self.tfl = node, tfl
        self.body: onnx.Graph = node.attribute("body")
        self.limit, self.condition = node.optional(0), node.optional(1)
        if self.limit is None and not self.stops:
            node.unsupported("has no end: neither a trip count nor a condition")
        constant = None if self.limit is None else self.limit.constant
        tfl.may_not_end |= self.stops or constant is None or constant.max(initial=0) > _MANY
        initial = node.rest(2)
        self.captured = captured(node, tfl, [self.body])
        inputs, outputs = self.body.inputs[2:], self.body.outputs[1:]
        self.states = [
            State(tfl, value, shape_in_body(self.node, each))
            for value, each in zip(initial, inputs, strict=True)
        ]
        self.rows: list[Rows] = [
            rows(tfl, shape_in_body(self.node, value), dtype_in_body(self.node, value, "TFLite"), self.steps)
            for value in outputs[len(initial) :]
        ]

    @cached_property
    def stops(self) -> bool:
        """Whether its condition may ever be false."""
        if self.condition is not None and (
            self.condition.constant is None or not self.condition.constant.all()
        ):
            return True
        value = unchanged(self.body.outputs[0])
        producer = value.producer()
        if producer is not None and producer.op_type == "Constant":
            return not producer.attributes["value"].as_tensor().numpy().all()
        is_true = value.const_value is not None and value.const_value.numpy().all()
        return value is not self.body.inputs[1] and not is_true

    @cached_property
    def limit_tensor(self) -> Tensor | None:
        """A trip count that is computed, as an int64 scalar."""
        if self.limit is None or self.limit.constant is not None:
            return None
        return self.tfl.reshape(self.tfl.tensor(self.limit), ())

    @cached_property
    def steps(self) -> int | Tensor | None:
        """How many steps there are, as far as that is known before the first."""
        if self.limit is None or self.stops:
            return None
        if self.limit.constant is not None:
            return max(0, int(self.limit.constant.item()))
        assert self.limit_tensor is not None
        return self.tfl.cast(self.limit_tensor, np.int32)

    def run(self) -> None:
        tfl = self.tfl
        counter = tfl.constant(0, np.int64)
        carried = [(counter, counter.type)]
        if self.stops:
            started = self.condition or scalar(True, bool)
            condition = tfl.reshape(tfl.tensor(started), ())
            carried.append((condition, condition.type))
        carried += [state.start() for state in self.states]
        starts = [each.start() for each in self.rows]
        self.widths = [len(start) for start in starts]
        carried += [each for start in starts for each in start]
        invariant = [] if self.limit_tensor is None else [self.limit_tensor]
        invariant += [v.copies[v.order] for v in self.captured.values() if v.constant is None]
        results = loop(tfl, carried, invariant, self._continues, self._step)
        counter, states, collected, _ = self._parts(results)
        values = [state.value(tensor) for state, tensor in zip(self.states, states, strict=True)]
        steps = tfl.cast(counter, np.int32)
        values += [
            tfl.computed(each.finish(part, steps)) for each, part in zip(self.rows, collected, strict=True)
        ]
        for index, value in enumerate(values):
            self.node.emit(value, index)

    def _parts(self, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor], list[list[Tensor]], list[Tensor]]:
        """The counter, the states, the parts of the rows, and what is invariant."""
        rest = iter(tensors)
        counter = next(rest)
        if self.stops:
            next(rest)
        states = [next(rest) for _ in self.states]
        collected = [[next(rest) for _ in range(width)] for width in self.widths]
        return counter, states, collected, list(rest)

    def _continues(self, arguments: list[Tensor]) -> list[Tensor]:
        tfl, tests = self.tfl, []
        if self.limit is not None:
            *_, invariant = self._parts(arguments)
            limit = (
                invariant[0]
                if self.limit_tensor is not None
                else tfl.constant(self.limit.constant.reshape(()), np.int64)  # type: ignore[union-attr]
            )
            tests.append(tfl.op("less", [arguments[0], limit], (), bool))
        if self.stops:
            tests.append(arguments[1])
        return [tests[0] if len(tests) == 1 else tfl.op("logical_and", tests, ())]

    def _step(self, arguments: list[Tensor]) -> list[Tensor]:
        tfl = self.tfl
        counter, states, collected, invariant = self._parts(arguments)
        results = self._lowered(counter, states, invariant)
        following = [tfl.op("add", [counter, tfl.constant(1, np.int64)], ())]
        if self.stops:
            following.append(tfl.reshape(tfl.tensor(results[0]), ()))
        count = 1 + len(self.states)
        for state, value, before in zip(self.states, results[1:count], self.body.inputs[2:], strict=True):
            if value.rank != len(shape_in_body(self.node, before)):
                self.node.unsupported(f"{before.name!r} in its body changes its number of dimensions")
            following.append(state.carried(value))
        step = tfl.cast(counter, np.int32)
        for each, part, value in zip(self.rows, collected, results[count:], strict=True):
            following += each.add(part, value, step)
        return following

    def _lowered(self, counter: Tensor, states: list[Tensor], invariant: list[Tensor]) -> list[Value]:
        """The body's results on the state at the start of a step."""
        number, goes_on, *inputs = self.body.inputs
        tensors = iter(invariant if self.limit_tensor is None else invariant[1:])
        visible = {
            key: within(value, None if value.constant is not None else next(tensors))
            for key, value in self.captured.items()
        }
        visible[number] = self.tfl.computed(counter)
        visible[number].is_size = visible[number].is_natural = True
        visible[goes_on] = scalar(True, bool)  # or there would be no step
        for key, state, tensor in zip(inputs, self.states, states, strict=True):
            visible[key] = state.value(tensor)
        results = [value for value in self.tfl.scope.lower(self.body, visible) if value is not None]
        if len(results) < len(self.body.outputs):
            self.node.unsupported("its body has nodes that are refused")
        return results
