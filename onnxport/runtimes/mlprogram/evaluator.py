"""Run a function of a package, operator by operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxport.formats.mlpackage.program import Block, Function, Type
from onnxport.runtimes.mlprogram.execution_plan import Plan, Step, make_plans, round_to_type, widen
from onnxport.runtimes.mlprogram.kernels.registry import Failed, Undefined, apply


class Evaluator:
    """One function of a package, planned once.

    Args:
        strict: raise Undefined where Apple documents no result.
        rounds: round each result to its declared type; else narrow floats are computed in float32 throughout, from the
            constants that are stored.
    """

    def __init__(self, function: Function, *, strict: bool = True, rounds: bool = True) -> None:
        self._function = function
        self._plans = make_plans(function, strict, rounds)
        self._main = self._plans[id(function.block)]
        # Results of constexpr operators: weights, which Core ML unpacks when it loads a program. By id() of the step.
        self._weights: dict[int, dict[str, Any]] = {}

    def missing(self) -> list[str]:
        """Return the operators that have no kernel."""
        steps = [step for plan in self._plans.values() for step in plan.steps]
        return sorted({step.call.operation.type for step in steps if step.kernel is None})

    def run(
        self, feeds: Mapping[str, Any], states: dict[str, Any] | None = None, keep: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the function's outputs, and the values named in `keep`, in their declared types.

        Args:
            feeds: an array for every input that is no state.
            states: content of each state; changed in place.

        Raises:
            Undefined: in strict mode, the result of an operator is not defined.
            Failed: an operator cannot be computed on its operands.
        """
        states = {} if states is None else states
        values: dict[str, Any] = dict(feeds)
        for name, type_ in self._function.inputs:
            if type_.dtype == "state":
                values[name] = _State(states, name, type_)
        wanted = {*self._function.block.outputs, *keep}
        with np.errstate(all="ignore"):  # infinities and NaN are results like others
            self._run(self._main, _Scope(values), wanted)
        values |= {name: self._main.constants[name] for name in wanted & self._main.constants.keys()}
        return {name: values[name] for name in wanted if name in values}

    def _run(self, plan: Plan, scope: _Scope, wanted: Collection[str]) -> list[Any]:
        """Evaluate into `scope`, freeing values when they are dead; return the block's outputs."""
        for step in plan.steps:
            self._evaluate(step, scope)
            for name in step.dead:
                if name not in wanted:
                    scope.values.pop(name, None)
        return [plan.constants[name] if name in plan.constants else scope[name] for name in plan.outputs]

    def _evaluate(self, step: Step, scope: _Scope) -> None:
        if id(step) in self._weights:
            scope.values |= self._weights[id(step)]
            return
        operands = dict(step.constants)
        operands |= {parameter: widen(value) for parameter, value in step.large_constants.items()}
        operands |= {parameter: widen(scope[name]) for parameter, name in step.values.items()}
        for parameter, several in step.lists.items():
            operands[parameter] = [
                widen(each.value if each.name is None else scope[each.name]) for each in several
            ]
        call, operation = step.call, step.call.operation
        if operation.blocks:
            call = replace(call, run=lambda block, inputs: self._run_nested(block, inputs, scope))
        try:
            results = apply(step.kernel, operands, call)
        except (Undefined, Failed):
            raise
        except (ValueError, IndexError, TypeError, ArithmeticError, AssertionError) as error:
            raise Failed(f"{operation.type} {operation.name!r}: {error}") from error
        if not operation.outputs:
            return  # write_state
        values = results if step.returns_tuple else (results,)
        for (name, type_), dtype, value in zip(operation.outputs, step.dtypes, values, strict=True):
            scope.values[name] = round_to_type(value, dtype, type_, operation)
        if operation.type.startswith("constexpr_"):
            self._weights[id(step)] = {name: scope.values[name] for name, _ in operation.outputs}

    def _run_nested(self, block: Block, inputs: Sequence[Any], scope: _Scope) -> list[Any]:
        plan = self._plans[id(block)]
        return self._run(plan, _Scope(dict(zip(plan.inputs, inputs, strict=True)), scope), ())


class _Scope:
    """The values of a running block, inside the scope of its enclosing block."""

    def __init__(self, values: dict[str, Any], outer: _Scope | None = None) -> None:
        self.values, self._outer = values, outer

    def __getitem__(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope._outer
        raise Failed(f"{name!r} is read but never computed")


class _State:
    """The operand of read_state and write_state."""

    def __init__(self, states: dict[str, Any], name: str, type_: Type) -> None:
        assert type_.inner is not None
        self._states, self._name, self._dtype = states, name, type_.inner.dtype
        self._shape = tuple(dim or 1 for dim in type_.inner.shape or ())
        self.write(states.get(name, np.zeros(self._shape)))

    def read(self) -> Any:
        return self._states[self._name]

    def write(self, value: Any) -> None:
        if value.shape != self._shape:
            raise Failed(f"state {self._name!r} of shape {self._shape} cannot hold a value of {value.shape}")
        self._states[self._name] = value.astype(self._dtype)
