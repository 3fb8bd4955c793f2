"""Tracks which variable of a program holds which ONNX value while passes rewrite the program.

Names are no evidence: passes of coremltools give the name of an intermediate value to the operator that it is fused
into, and move transposes past operators that keep their names. A tap is valid if its variable still exists and is
computed from the same operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onnxport.converters.coreml.library import types
from onnxport.formats.manifest import Tap


class TapTracker:
    """The tapped variables of a program's main function.

    Args:
        function: before the first pass.
        taps: ONNX name to the name of its variable.
    """

    def __init__(self, function: Any, taps: Mapping[str, Tap]) -> None:
        self._function = function
        named = {var.name: var for operation in function.operations for var in operation.outputs}
        self._vars = {name: named[tap.key] for name, tap in taps.items() if tap.key in named}

    def replace(self, old: Any, new: Any) -> None:
        """Move the value of `old` to `new`, which loses its own."""
        self._vars = {name: var for name, var in self._vars.items() if var is not new}
        self._vars = {name: new if var is old else var for name, var in self._vars.items()}

    def axis_orders(self) -> AxisOrders:
        """Record the order of all axes before a pass that moves transposes, for `keep_unmoved`."""
        return AxisOrders(self._function)

    def keep_unmoved(self, before: AxisOrders) -> None:
        """Drop the variables whose axes have another order than `before`, or may have."""
        now = before.after(self._function)
        self._vars = {
            name: var
            for name, var in self._vars.items()
            if now.get(var) is not None and now.get(var) == before.held.get(var)
        }

    def taps(self) -> dict[str, Tap]:
        """Return the remaining taps, by the variables' present names."""
        present = {var for operation in self._function.operations for var in operation.outputs}
        return {name: Tap(var.name, ()) for name, var in self._vars.items() if var in present}


_Held = dict[Any, tuple[Any, tuple[int, ...]] | None]


class AxisOrders:
    """The order of every variable's axes, as a transpose of another variable.

    Attributes:
        held: variable to (the variable that it is a transpose of, or itself; the permutation).
    """

    def __init__(self, function: Any) -> None:
        self._operands = {operation: _operands(operation) for operation in function.operations}
        self.held: _Held = {var: _identity(var) for var in function.inputs.values()}
        for operation in function.operations:
            transposed = _transpose_source(operation, self.held)
            self.held |= {var: transposed or _identity(var) for var in operation.outputs}

    def after(self, function: Any) -> _Held:
        """Return the same after a pass, in terms of the variables before it; None for unknown ones."""
        held: _Held = {var: _identity(var) for var in function.inputs.values()}
        for operation in function.operations:
            if operation.op_type == "transpose":
                result = _transpose_source(operation, held)
                held |= dict.fromkeys(operation.outputs, result)
                continue
            order = self._order(operation, held)
            for var in operation.outputs:
                unmoved = _identity(var)
                held[var] = unmoved if order == () else None if order is None else (var, order)
                if order and len(order) != len(unmoved[1]):
                    held[var] = None
        return held

    def _order(self, operation: Any, held: _Held) -> tuple[int, ...] | None:
        """Return the permutation of an operator's operands against those before; None if unknown."""
        before, now = self._operands.get(operation), _operands(operation)
        if operation.op_type == "const":
            return ()
        if before is None or len(before) != len(now) or operation.blocks:
            return None
        orders = set()
        for old, new in zip(before, now, strict=True):
            if new.op is not None and new.op.op_type == "const":
                continue  # the pass transposes constants as needed
            was, is_ = self.held.get(old), held.get(new)
            if was is None or is_ is None or was[0] is not is_[0]:
                return None
            orders.add(tuple(was[1].index(axis) for axis in is_[1]))
        moved = {order for order in orders if order != tuple(sorted(order))}
        if not moved:
            return ()
        return moved.pop() if len(orders) == 1 else None


def _identity(var: Any) -> tuple[Any, tuple[int, ...]]:
    has_shape = types.is_tensor(var.sym_type)  # a loop's list and a scalar have none
    return var, tuple(range(len(var.shape) if has_shape else 0))


def _transpose_source(operation: Any, held: _Held) -> tuple[Any, tuple[int, ...]] | None:
    """Return the variable that a transpose's result is a transpose of, and the permutation."""
    if operation.op_type != "transpose" or operation.perm.val is None:
        return None
    source = held.get(operation.x)
    if source is None:
        return None
    root, order = source
    return root, tuple(order[int(axis) % len(order)] for axis in operation.perm.val)


def _operands(operation: Any) -> tuple[Any, ...]:
    return tuple(_flat(operation.inputs.values()))


def _flat(operands: Any) -> Iterator[Any]:
    for operand in operands:
        if isinstance(operand, list | tuple):
            yield from _flat(operand)
        elif operand is not None:
            yield operand
