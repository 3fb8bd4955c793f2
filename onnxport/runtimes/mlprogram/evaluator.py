"""Runs a function of a package, operator by operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxport.formats.mlpackage.program import Block, Function, Type
from onnxport.runtimes.mlprogram.compiled_program import Plan, Step, planned, stored, widened
from onnxport.runtimes.mlprogram.registry import Failed, Undefined, apply


class Evaluator:
    """One function of a package, made ready once.

    Args:
        strict: whether what Apple's documentation leaves undefined raises (registry.Undefined).
    """

    def __init__(self, function: Function, *, strict: bool = True) -> None:
        self._function = function
        self._plans = planned(function, strict)
        self._main = self._plans[id(function.block)]
        # What constexpr operators gave: weights, which Core ML unpacks when it loads a program. By id() of the step.
        self._unpacked: dict[int, dict[str, Any]] = {}

    def missing(self) -> list[str]:
        """The operators that have no kernel."""
        steps = [step for plan in self._plans.values() for step in plan.steps]
        return sorted({step.call.operation.type for step in steps if step.kernel is None})

    def run(
        self, feeds: Mapping[str, Any], states: dict[str, Any] | None = None, keep: Collection[str] = ()
    ) -> dict[str, Any]:
        """The function's outputs, and the values named in `keep`, in the types that the program declares.

        Args:
            feeds: an array for every input that is no state.
            states: what each state holds; changed in place.

        Raises:
            Undefined: what a program computes is not defined, in strict mode.
            Failed: an operator cannot be computed on what it is given.
        """
        states = {} if states is None else states
        values: dict[str, Any] = dict(feeds)
        for name, type_ in self._function.inputs:
            if type_.dtype == "state":
                values[name] = _State(states, name, type_)
        wanted = {*self._function.block.outputs, *keep}
        with np.errstate(all="ignore"):  # what is infinite or no number is for the program's caller to judge
            self._run(self._main, _Scope(values), wanted)
        values |= {name: self._main.constants[name] for name in wanted & self._main.constants.keys()}
        return {name: values[name] for name in wanted if name in values}

    def _run(self, plan: Plan, scope: _Scope, wanted: Collection[str]) -> list[Any]:
        """Evaluates into `scope`, which lets go of what nothing reads any more."""
        for step in plan.steps:
            self._evaluate(step, scope)
            for name in step.last:
                if name not in wanted:
                    scope.values.pop(name, None)
        return [plan.constants[name] if name in plan.constants else scope[name] for name in plan.outputs]

    def _evaluate(self, step: Step, scope: _Scope) -> None:
        if id(step) in self._unpacked:
            scope.values |= self._unpacked[id(step)]
            return
        operands = dict(step.fixed)
        operands |= {parameter: widened(value) for parameter, value in step.heavy.items()}
        operands |= {parameter: widened(scope[name]) for parameter, name in step.read.items()}
        for parameter, several in step.listed.items():
            operands[parameter] = [
                widened(each.value if each.name is None else scope[each.name]) for each in several
            ]
        call, operation = step.call, step.call.operation
        if operation.blocks:
            call = replace(call, run=lambda block, inputs: self._nested(block, inputs, scope))
        try:
            results = apply(step.kernel, operands, call)
        except (Undefined, Failed):
            raise
        except (ValueError, IndexError, TypeError, ArithmeticError, AssertionError) as error:
            raise Failed(f"{operation.type} {operation.name!r}: {error}") from error
        if not operation.outputs:
            return  # write_state and its like
        given = results if step.manifold else (results,)
        for (name, type_), dtype, value in zip(operation.outputs, step.dtypes, given, strict=True):
            scope.values[name] = stored(value, dtype, type_, operation)
        if operation.type.startswith("constexpr_"):
            self._unpacked[id(step)] = {name: scope.values[name] for name, _ in operation.outputs}

    def _nested(self, block: Block, inputs: Sequence[Any], scope: _Scope) -> list[Any]:
        plan = self._plans[id(block)]
        return self._run(plan, _Scope(dict(zip(plan.inputs, inputs, strict=True)), scope), ())


class _Scope:
    """The values of a block that runs, around them those of the blocks it stands in."""

    def __init__(self, values: dict[str, Any], outer: _Scope | None = None) -> None:
        self.values, self._outer = values, outer

    def __getitem__(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope._outer
        raise Failed(f"{name!r} is read, but nothing gives it")


class _State:
    """A handle that read_state and write_state are given."""

    def __init__(self, states: dict[str, Any], name: str, type_: Type) -> None:
        assert type_.inner is not None
        self._states, self._name, self._dtype = states, name, type_.inner.dtype
        self._shape = tuple(dim or 1 for dim in type_.inner.shape or ())
        self.write(states.get(name, np.zeros(self._shape)))

    def read(self) -> Any:
        return self._states[self._name]

    def write(self, value: Any) -> None:
        if value.shape != self._shape:
            raise Failed(f"state {self._name!r} of shape {self._shape} is given a value of {value.shape}")
        self._states[self._name] = value.astype(self._dtype)
