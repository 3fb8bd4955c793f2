"""The registry of kernels: one function per MIL operator, written from its documentation.

    @kernel("leaky_relu")
    def leaky_relu(x: Array, alpha: Array) -> Array:
        return np.where(x >= 0, x, alpha * x)

A kernel has the operator's parameters, by name and with the same defaults. It gets arrays (float16 widened to float32;
scalars as arrays of rank 0), Python strings, and lists of arrays where an operator takes several. It returns an array,
or a tuple of several; the evaluator rounds them to the declared types. A kernel that needs more takes a parameter
`call`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxport.core.arrays import Array
from onnxport.formats.mlpackage.program import Block, Operation, Type

Kernel = Callable[..., Any]
# Operands of rank 0, which have a plain number as default.
Int = Array | int
Float = Array | float
Flag = Array | bool


class Undefined(Exception):
    """Apple's documentation defines no result for the operands; the message says which and why."""


class Failed(Exception):
    """The operator cannot be computed on its operands, or its result has another shape than declared."""


def _no_blocks(block: Block, inputs: Sequence[Any]) -> list[Any]:
    raise Failed("the operator has no blocks to run")


@dataclass(frozen=True)
class Call:
    """An operator of a program, for kernels that need more than the operands."""

    operation: Operation
    opset: str  # opset of the function ("CoreML5" is iOS15, "CoreML7" iOS17)
    strict: bool  # raise Undefined; else compute what NumPy computes
    dtypes: Mapping[str, str]  # declared type of each operand; kernels see float16 as float32
    # Evaluates a nested block on its inputs and returns its outputs (cond, while_loop).
    run: Callable[[Block, Sequence[Any]], list[Any]] = _no_blocks

    @property
    def result(self) -> Type:
        """The declared type of the first result."""
        return self.operation.outputs[0][1]

    def undefined(self, case: str) -> None:
        """Raise Undefined for `case` in strict mode; else return, and the kernel continues."""
        if self.strict:
            raise Undefined(f"{self.operation.type} {self.operation.name!r}: {case}")

    def at_least(self, opset: int) -> bool:
        """Return whether the function has this opset (5 for iOS15, 6, 7, 8 for iOS18, 9 for iOS26) or a newer one."""
        return int(self.opset.removeprefix("CoreML")) >= opset


KERNELS: dict[str, Kernel] = {}
_TAKES_CALL: set[Kernel] = set()


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register the decorated function for the MIL operators `names`."""

    def decorate(function: Kernel) -> Kernel:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"{name} has a kernel already: {KERNELS[name]}")
            KERNELS[name] = function
        if "call" in inspect.signature(function).parameters:
            _TAKES_CALL.add(function)
        return function

    return decorate


def register(table: Mapping[str, Kernel]) -> None:
    """Register the kernels of a table, keyed by MIL operator."""
    for name, function in table.items():
        kernel(name)(function)


def apply(function: Kernel | None, operands: Mapping[str, Any], call: Call) -> Any:
    """Run the kernel of an operator."""
    if function is None:
        raise Failed(f"{call.operation.type} {call.operation.name!r}: the evaluator has no such operator")
    return function(**operands, call=call) if function in _TAKES_CALL else function(**operands)
