"""If and Loop: MIL's cond and while_loop, with the graphs as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import onnx_ir as onnx

from onnxport.converters.coreml.builder import MilBuilder, MilNode, wrap
from onnxport.converters.coreml.control import (
    block_result,
    check_carried,
    declare_open,
    emit_variable,
    make_rows,
)
from onnxport.converters.coreml.library import Var
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.loop_body import LoopNode

# The counter is an int32: a trip count beyond it is none.
_FAR = int(np.iinfo(np.int32).max)


@lower("If")
def if_(node: MilNode, mil: MilBuilder) -> None:
    """Run one of two graphs, whose results may differ in their sizes (ONNX If-21)."""
    graphs = [node.attribute("then_branch"), node.attribute("else_branch")]
    switch = mil.var(mil.squeeze(x=node.x, axes=list(range(node.x.rank))) if node.x.rank else node.x)
    differ = [
        _may_differ(node, *(graph.outputs[index] for graph in graphs))
        for index in range(len(graphs[0].outputs))
    ]

    def branch(graph: onnx.Graph) -> tuple[Var, ...]:
        results = []
        for index, value in enumerate(mil.scope.lower(graph, {})):
            if value is None:
                node.unsupported("a branch has refused nodes, or a result that is not a tensor")
            check_carried(node, value, node.node.outputs[index].name)
            if differ[index] and value.rank:
                value = _with_open_sizes(mil, value, switch)
            results.append(block_result(mil, value))
        return tuple(results)

    then, otherwise = graphs
    results = mil.emit_all(
        "cond", pred=switch, _true_fn=lambda: branch(then), _false_fn=lambda: branch(otherwise)
    )
    for index, result in enumerate(results):
        node.emit(result, index)


def _may_differ(node: MilNode, then: onnx.Value, otherwise: onnx.Value) -> bool:
    """Return whether the branches may differ in the sizes of a result."""
    if then.shape is None or otherwise.shape is None:
        return True
    if len(then.shape) != len(otherwise.shape):
        node.unsupported(
            f"its branches give {len(then.shape)} and {len(otherwise.shape)} dimensions for one result; "
            "give it the same number in both"
        )
    return list(then.shape) != list(otherwise.shape) or any(not isinstance(d, int) for d in then.shape)


def _with_open_sizes(mil: MilBuilder, value: Value, switch: Var) -> Value:
    """Return `value` with sizes that MIL knows at run time only: branches may differ in them, not in types.

    Args:
        switch: any run-time bool, so that the sizes are computed.
    """
    zero = emit_variable(mil, "mul", x=emit_variable(mil, "cast", x=switch, dtype="int32"), y=0)
    sizes = emit_variable(mil, "add", x=mil.shape(x=value), y=zero)
    made = mil.reshape(x=value, shape=sizes)
    made.dtype, made.is_natural = value.dtype, value.is_natural
    return made


@lower("Loop")
def loop(node: MilNode, mil: MilBuilder) -> None:
    """Run a graph repeatedly on its own results, and collect a row of each step (ONNX Loop-21)."""
    _Loop(node, mil).run()


class _Loop(LoopNode[Value]):
    """A Loop; it carries a counter, the condition, its states and its rows, in this order."""

    target = "Core ML"

    def __init__(self, node: MilNode, mil: MilBuilder) -> None:
        super().__init__(node)
        self.mil = mil
        for value, each in zip(self.initial, self.states, strict=True):
            check_carried(node, value, each.name)
        self.shapes = [self.shape(each) for each in self.states]
        self.dtypes = [self.dtype(each) for each in self.states]
        # The number of slots to make for rows is unknown where the loop may stop.
        steps = None if self.stops and not isinstance(self.bound, int) else self.bound
        self.collectors = [make_rows(mil, self.shape(each), self.dtype(each), steps) for each in self.rows]

    @cached_property
    def bound(self) -> Var | int | None:
        """The largest number of steps."""
        if self.limit is None:
            return None
        if self.limit.constant is not None:
            count = int(self.limit.constant.item())
            return min(max(count, 0), _FAR)
        return self.mil.var(_scalar(self.mil, self.limit))

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
        variables = [block_result(mil, value) for value in starts]
        variables += [each.start() for each in self.collectors]
        results = mil.emit_all("while_loop", _cond=self._continues, _body=self._step, loop_vars=variables)
        counter, _, states, collected = self._parts([value.var for value in results])
        values = [wrap(var, dtype) for var, dtype in zip(states, self.dtypes, strict=True)]
        gathered = [
            each.finish(part, counter, may_stop=self.stops)
            for each, part in zip(self.collectors, collected, strict=True)
        ]
        self._emit(values, gathered)

    def _emit(self, states: Sequence[Value], collected: Sequence[Value]) -> None:
        for index, value in enumerate((*states, *collected)):
            self.node.emit(value, index)
        if len(states) + len(collected) < self.node.output_count:
            self.node.unsupported("collects nothing if it runs zero steps, and Core ML has no empty tensors")

    def _parts(self, arguments: Sequence[Var]) -> tuple[Var, Var | None, list[Var], list[Var]]:
        """Split variables into the counter, the condition, the states and the rows."""
        rest = iter(arguments)
        counter, goes_on = next(rest), next(rest) if self.stops else None
        states = [next(rest) for _ in self.initial]
        return counter, goes_on, states, list(rest)

    def _continues(self, *arguments: Var) -> Var:
        counter, goes_on, states, _ = self._parts(arguments)
        for var in arguments:
            declare_open(var, ())
        for var, shape in zip(states, self.shapes, strict=True):
            declare_open(var, shape)
        left = None
        if self.bound is not None:
            left = emit_variable(self.mil, "less", x=counter, y=self.bound)
        if goes_on is None or left is None:
            given = goes_on if left is None else left
            assert given is not None
            return emit_variable(self.mil, "identity", x=given)
        return emit_variable(self.mil, "logical_and", x=left, y=goes_on)

    def _step(self, *arguments: Var) -> list[Var]:
        mil = self.mil
        counter, _, states, collected = self._parts(arguments)
        condition, after, added = self.lower_body(mil.scope, self._visible(counter, states))
        following = [emit_variable(mil, "add", x=counter, y=1)]
        if self.stops:
            following.append(block_result(mil, _scalar(mil, condition)))
        for value, each in zip(after, self.states, strict=True):
            check_carried(self.node, value, each.name)
            following.append(block_result(mil, value))
        for collector, part, value in zip(self.collectors, collected, added, strict=True):
            check_carried(self.node, value, "a row")
            following.append(collector.add(part, value, counter))
        return following

    def _visible(self, counter: Var, states: Sequence[Var]) -> dict[onnx.Value, Value]:
        """Return the values of the body's inputs in a step."""
        number, goes_on, *inputs = self.body.inputs
        visible = {number: wrap(counter, np.dtype(np.int64)), goes_on: self.mil.constant(np.array(True))}
        visible[number].is_natural = True
        for each, var, dtype in zip(inputs, states, self.dtypes, strict=True):
            visible[each] = wrap(var, dtype)
        return visible


def _scalar(mil: MilBuilder, value: Value) -> Value:
    """Return a value of one element as a scalar."""
    if value.constant is not None:
        return mil.constant(value.constant.reshape(()))
    return mil.squeeze(x=value, axes=list(range(value.rank))) if value.rank else value
