"""If and Loop: functions that TFLite's IF and WHILE call."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
import onnx_ir as onnx

from onnxport.converters.loop_body import LoopNode
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.control.functions import emit_branches, emit_loop, find_captures, nested_value
from onnxport.converters.tflite.control.loop_state import Rows, State, make_rows
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value, scalar

# Steps that a trial run on generated inputs may take.
_MANY = 10_000


@lower("If")
def if_(node: TflNode, tfl: TflBuilder) -> None:
    """Run one of two graphs, whose results may differ in their sizes (ONNX If-21)."""
    _If(node, tfl).run()


class _If:
    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        self.node, self.tfl = node, tfl
        self.graphs: list[onnx.Graph] = [node.attribute("then_branch"), node.attribute("else_branch")]
        self.captured = find_captures(node, tfl, self.graphs)
        self.outputs: list[list[Value]] = []

    def run(self) -> None:
        tfl = self.tfl
        condition = tfl.reshape(tfl.tensor(self.node.x), ())
        operands = [value.copies[value.order] for value in self.captured.values() if value.constant is None]
        then, otherwise = (partial(self._branch, graph) for graph in self.graphs)
        results = emit_branches(tfl, condition, operands, then, otherwise)
        for index, (tensor, pair) in enumerate(zip(results, zip(*self.outputs, strict=True), strict=True)):
            result = tfl.value(tensor, pair[0].order)
            result.is_size = all(each.is_size for each in pair)
            result.is_natural = all(each.is_natural for each in pair)
            self.node.emit(result, index)

    def _hide_size(self, tensor: Tensor) -> Tensor:
        """Return a tensor of open size whose size TFLite knows only when the branch runs.

        Otherwise it prepares both branches for the sizes at hand, which may suit one of them only.
        """
        tfl, shape = self.tfl, self.tfl.shape_of(tensor)
        if None not in shape:
            return tensor
        sizes = tfl.sizes(tensor)
        computed = tfl.op("maximum", [sizes, tfl.int32(0)], [len(shape)])  # SHAPE alone is known beforehand
        return tfl.op("reshape", [tensor, computed], shape)

    def _branch(self, graph: onnx.Graph, operands: list[Tensor]) -> list[Tensor]:
        rest = iter(operands)
        visible = {
            key: nested_value(value, None if value.constant is not None else self._hide_size(next(rest)))
            for key, value in self.captured.items()
        }
        outputs = [value for value in self.tfl.scope.lower(graph, visible) if value is not None]
        if len(outputs) < len(graph.outputs):
            self.node.unsupported(f"its branch {graph.name!r} has nodes that are refused")
        self.outputs.append(outputs)
        then = self.outputs[0]
        for ours, theirs in zip(outputs, then, strict=True):
            if ours.rank != theirs.rank:
                self.node.unsupported(
                    f"its branches give {theirs.rank} and {ours.rank} dimensions for one result; "
                    "give it the same number in both"
                )
        return [self.tfl.tensor(value, model.order) for value, model in zip(outputs, then, strict=True)]


@lower("Loop")
def loop_(node: TflNode, tfl: TflBuilder) -> None:
    """Run a graph repeatedly on its own results, and collect a row of each step (ONNX Loop-21)."""
    _Loop(node, tfl).run()


class _Loop(LoopNode[Value]):
    """A Loop and all that it carries, in the order of its functions' arguments."""

    target = "TFLite"

    def __init__(self, node: TflNode, tfl: TflBuilder) -> None:
        super().__init__(node)
        self.tfl = tfl
        constant = None if self.limit is None else self.limit.constant
        tfl.may_not_end |= self.stops or constant is None or constant.max(initial=0) > _MANY
        self.captured = find_captures(node, tfl, [self.body])
        self.carried_states = [
            State(tfl, value, self.shape(each)) for value, each in zip(self.initial, self.states, strict=True)
        ]
        self.collectors: list[Rows] = [
            make_rows(tfl, self.shape(each), self.dtype(each), self.steps) for each in self.rows
        ]

    def is_true(self, value: onnx.Value) -> bool:
        producer = value.producer()
        if producer is not None and producer.op_type == "Constant":
            return bool(producer.attributes["value"].as_tensor().numpy().all())
        return super().is_true(value)

    @cached_property
    def limit_tensor(self) -> Tensor | None:
        """The trip count as an int64 scalar, if it is computed."""
        if self.limit is None or self.limit.constant is not None:
            return None
        return self.tfl.reshape(self.tfl.tensor(self.limit), ())

    @cached_property
    def steps(self) -> int | Tensor | None:
        """The number of steps, if it is known before the first."""
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
        carried += [state.start() for state in self.carried_states]
        starts = [each.start() for each in self.collectors]
        self.widths = [len(start) for start in starts]
        carried += [each for start in starts for each in start]
        invariant = [] if self.limit_tensor is None else [self.limit_tensor]
        invariant += [v.copies[v.order] for v in self.captured.values() if v.constant is None]
        results = emit_loop(tfl, carried, invariant, self._continues, self._step)
        counter, states, collected, _ = self._parts(results)
        values = [state.value(tensor) for state, tensor in zip(self.carried_states, states, strict=True)]
        steps = tfl.cast(counter, np.int32)
        values += [
            tfl.value(each.finish(part, steps)) for each, part in zip(self.collectors, collected, strict=True)
        ]
        for index, value in enumerate(values):
            self.node.emit(value, index)

    def _parts(self, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor], list[list[Tensor]], list[Tensor]]:
        """Split arguments into the counter, the states, the parts of the rows, and the invariant ones."""
        rest = iter(tensors)
        counter = next(rest)
        if self.stops:
            next(rest)
        states = [next(rest) for _ in self.carried_states]
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
        condition, after, added = self.lower_body(tfl.scope, self._visible(counter, states, invariant))
        following = [tfl.op("add", [counter, tfl.constant(1, np.int64)], ())]
        if self.stops:
            following.append(tfl.reshape(tfl.tensor(condition), ()))
        following += [state.carry(value) for state, value in zip(self.carried_states, after, strict=True)]
        step = tfl.cast(counter, np.int32)
        for each, part, value in zip(self.collectors, collected, added, strict=True):
            following += each.add(part, value, step)
        return following

    def _visible(
        self, counter: Tensor, states: list[Tensor], invariant: list[Tensor]
    ) -> dict[onnx.Value, Value]:
        """Return the values that the body reads in a step."""
        number, goes_on, *inputs = self.body.inputs
        tensors = iter(invariant if self.limit_tensor is None else invariant[1:])
        visible = {
            key: nested_value(value, None if value.constant is not None else next(tensors))
            for key, value in self.captured.items()
        }
        visible[number] = self.tfl.value(counter)
        visible[number].is_size = visible[number].is_natural = True
        visible[goes_on] = scalar(True, bool)  # or there would be no step
        for key, state, tensor in zip(inputs, self.carried_states, states, strict=True):
            visible[key] = state.value(tensor)
        return visible
