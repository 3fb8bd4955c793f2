"""The registry of kernels: one function per MIL operator, written from its documentation.

    @kernel("leaky_relu")
    def leaky_relu(x: Array, alpha: Array) -> Array:
        return np.where(x >= 0, x, alpha * x)

A kernel's parameters are the operator's own, by name; those that the operator may leave out have its default. It gets
arrays (float16 widened to float32; scalars as arrays of rank 0), Python strings, and lists of arrays where an operator
takes several; it gives an array, or a tuple of them for several results. Results are rounded to the declared types
by the evaluator, not here. A kernel that needs more takes a parameter `call`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxport.formats.mlpackage.program import Block, Operation, Type

Kernel = Callable[..., Any]


class Undefined(Exception):
    """Operands on which Apple's documentation defines no result; the message says which and why."""


class Failed(Exception):
    """Operands that an operator cannot be computed on, or a result that is not what the program declares."""


def _no_blocks(block: Block, inputs: Sequence[Any]) -> list[Any]:
    raise Failed("an operator without blocks has nothing to run")


@dataclass(frozen=True)
class Call:
    """What a kernel may know of its operator beside the operands.

    Attributes:
        operation: as the program has it.
        opset: the function's ("CoreML5" is iOS15, "CoreML7" iOS17).
        strict: whether what is undefined raises instead of doing what NumPy does.
        dtypes: the declared type of each operand that is a tensor, since kernels see float16 as float32.
        run: evaluates a nested block on its inputs and gives its outputs (cond, while_loop).
    """

    operation: Operation
    opset: str
    strict: bool
    dtypes: Mapping[str, str]
    run: Callable[[Block, Sequence[Any]], list[Any]] = _no_blocks

    @property
    def result(self) -> Type:
        """The declared type of the first result."""
        return self.operation.outputs[0][1]

    def undefined(self, what: str) -> None:
        """Says that Apple's documentation defines no result for `what`; outside of strict mode the kernel goes on."""
        if self.strict:
            raise Undefined(f"{self.operation.type} {self.operation.name!r}: {what}")

    def at_least(self, opset: int) -> bool:
        """Whether the function is written in opset `opset` (5 for iOS15, 6, 7, 8 for iOS18, 9 for iOS26) or newer."""
        return int(self.opset.removeprefix("CoreML")) >= opset


KERNELS: dict[str, Kernel] = {}
_TAKES_CALL: set[Kernel] = set()


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Registers the decorated function for the MIL operators `names`."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"{name} has a kernel already: {KERNELS[name]}")
            KERNELS[name] = function
        if "call" in inspect.signature(function).parameters:
            _TAKES_CALL.add(function)
        return function

    return register


def apply(function: Kernel | None, operands: Mapping[str, Any], call: Call) -> Any:
    """Runs the kernel of an operator."""
    if function is None:
        raise Failed(f"{call.operation.type} {call.operation.name!r}: the evaluator has no such operator")
    return function(**operands, call=call) if function in _TAKES_CALL else function(**operands)
