"""Runs a function of a package, operator by operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.validate.runtimes.mil import kernels  # noqa: F401 - fills the registry
from onnxport.validate.runtimes.mil.program import Block, Constant, Function, Operation, Type
from onnxport.validate.runtimes.mil.registry import KERNELS, Call, apply

# Types that kernels compute in float32.
_NARROW = frozenset(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"))
# Integers of fewer bits than a byte are held in bytes.
_HELD = {"int4": "int8", **{f"uint{bits}": "uint8" for bits in (1, 2, 3, 4, 6)}}

# Parameters that are lists even when they have one element.
_VARIADIC = frozenset(("values", "loop_vars", "ref_tensors", "begins", "ends", "end_masks"))
# Operators with as many results as they are asked for, which may be one.
_MANIFOLD = frozenset(("split", "topk", "cond", "while_loop"))


class Evaluator:
    """One function of a package, its constants decoded once.

    Args:
        strict: whether what Apple's documentation leaves undefined raises (registry.Undefined).
    """

    def __init__(self, function: Function, *, strict: bool = True) -> None:
        self._function, self._strict = function, strict
        self._constants: dict[str, Any] = {}
        self._dtypes: dict[str, str] = {name: type_.dtype for name, type_ in function.inputs}
        for operation in _all(function.block):
            self._dtypes |= {name: type_.dtype for name, type_ in operation.outputs}
        self._reads = Counter(_reads(function.block))

    def missing(self) -> list[str]:
        """The operators that have no kernel."""
        held = {"const", *KERNELS}
        return sorted({each.type for each in _all(self._function.block)} - held)

    def run(
        self, feeds: Mapping[str, Any], states: dict[str, Any] | None = None, keep: Collection[str] = ()
    ) -> dict[str, Any]:
        """The function's outputs, and the values named in `keep`, in the types that the program declares.

        Args:
            feeds: an array for every input that is no state.
            states: what each state holds; changed in place.
        """
        states = {} if states is None else states
        scope: dict[str, Any] = dict(feeds)
        for name, type_ in self._function.inputs:
            if type_.dtype == "state":
                assert type_.inner is not None
                empty = np.zeros(tuple(dim or 1 for dim in type_.inner.shape or ()), type_.inner.dtype)
                states.setdefault(name, empty)
                scope[name] = _State(states, name)
        wanted = {*self._function.block.outputs, *keep}
        self._run_block(self._function.block, scope, wanted)
        return {name: scope[name] for name in wanted if name in scope}

    def _run_block(self, block: Block, scope: dict[str, Any], wanted: Collection[str]) -> list[Any]:
        """Evaluates into `scope`, which lets go of what nothing reads any more."""
        left = dict(self._reads) if block is self._function.block else {}
        for operation in block.operations:
            self._evaluate(operation, scope)
            for name in _operands(operation) if left else ():
                left[name] -= 1
                if not left[name] and name not in wanted:
                    scope.pop(name, None)
        return [scope[name] for name in block.outputs]

    def _evaluate(self, operation: Operation, scope: dict[str, Any]) -> None:
        if operation.type == "const":
            scope[operation.outputs[0][0]] = operation.attributes["val"].value
            return
        operands = {name: self._operand(name, bound, scope) for name, bound in operation.inputs.items()}
        operands |= {name: _widened(each.value) for name, each in operation.attributes.items()}
        call = Call(
            operation,
            self._function.opset,
            self._strict,
            {name: self._dtype(bound[0]) for name, bound in operation.inputs.items() if bound},
            lambda block, inputs: self._nested(block, inputs, scope),
        )
        results = apply(operation.type, operands, call)
        if not operation.outputs:
            return  # write_state and its like
        several = len(operation.outputs) > 1 or operation.type in _MANIFOLD
        given = results if several else (results,)
        for (name, type_), value in zip(operation.outputs, given, strict=True):
            scope[name] = rounded(value, type_)

    def _nested(self, block: Block, inputs: Sequence[Any], scope: Mapping[str, Any]) -> list[Any]:
        inner = dict(scope) | dict(zip(block.inputs, inputs, strict=True))
        return self._run_block(block, inner, ())

    def _operand(self, name: str, bound: tuple[str | Constant, ...], scope: Mapping[str, Any]) -> Any:
        values = [_widened(each.value if isinstance(each, Constant) else scope[each]) for each in bound]
        return values if name in _VARIADIC or len(values) != 1 else values[0]

    def _dtype(self, bound: str | Constant) -> str:
        if isinstance(bound, Constant):
            return str(getattr(bound.value, "dtype", "str"))
        return self._dtypes.get(bound, "")


class _State:
    """A handle that read_state and write_state are given."""

    def __init__(self, states: dict[str, Any], name: str) -> None:
        self._states, self._name = states, name

    def read(self) -> Any:
        return self._states[self._name]

    def write(self, value: Any) -> None:
        self._states[self._name] = value


def rounded(value: Any, type_: Type) -> Any:
    """A kernel's result as the program declares it."""
    if not isinstance(value, np.ndarray | np.generic) or type_.dtype in (
        "list",
        "state",
        "str",
        "dictionary",
    ):
        return value
    dtype = np.dtype(
        getattr(ml_dtypes, _HELD.get(type_.dtype, type_.dtype), _HELD.get(type_.dtype, type_.dtype))
    )
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype, copy=False)


def _widened(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.name in _NARROW:
        return np.asarray(value.astype(np.float32))
    return np.asarray(value) if isinstance(value, np.generic) else value


def _all(block: Block) -> Iterator[Operation]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _all(inner)


def _operands(operation: Operation) -> Iterator[str]:
    """The names that an operator reads, those inside its blocks among them."""
    for bound in operation.inputs.values():
        yield from (each for each in bound if isinstance(each, str))
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from _operands(inner)


def _reads(block: Block) -> Iterator[str]:
    for operation in block.operations:
        yield from _operands(operation)
