"""One operation of a compiled module, with its shapes, constants and attributes as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from litert_converter.mlir import ir

from onnxport.converters.tflite.tensors import Tensor, TensorBuilder
from onnxport.core.arrays import Array

CONSTANTS = frozenset(("arith.constant", "tfl.pseudo_const"))
Sizes = tuple[int, ...]


class TflOp:
    """An operation whose sizes are all known; `tfl` emits before it."""

    def __init__(self, operation: ir.Operation, tfl: TensorBuilder) -> None:
        self.operation, self.tfl = operation, tfl
        self.name = operation.name.removeprefix("tfl.")

    @cached_property
    def operands(self) -> list[Tensor]:
        return list(self.operation.operands)

    @property
    def x(self) -> Tensor:
        """The first operand."""
        return self.operands[0]

    @cached_property
    def shape(self) -> Sizes:
        """The first operand's."""
        return sizes(self.x)

    @cached_property
    def out(self) -> Sizes:
        """The first result's shape."""
        return sizes(self.operation.results[0])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The first result's element type."""
        return self.tfl.dtype_of(self.operation.results[0])

    def constant(self, index: int) -> Array | None:
        """Return a constant operand's elements, None for one that is computed or absent."""
        return elements(self.operands[index]) if index < len(self.operands) else None

    def is_constant(self, *places: int) -> bool:
        return all(is_constant(self.operands[place]) for place in places)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value, enumerations as their text."""
        if name not in self.operation.attributes:
            return default
        found = self.operation.attributes[name]
        if isinstance(found, ir.ArrayAttr):
            return [each.value for each in found]
        return found.value if hasattr(found, "value") else str(found)

    def attributes(self, *left_out: str) -> dict[str, object]:
        """Return the attributes as they are, for an operation of the same kind."""
        return {
            name: self.operation.attributes[name]
            for name in self.operation.attributes
            if name not in left_out
        }

    def again(
        self,
        operands: Sequence[Tensor],
        shape: Sequence[int],
        *,
        without: Sequence[str] = (),
        **given: object,
    ) -> Tensor:
        """Emit the same operation on other operands."""
        attributes = {**self.attributes(*without), **given}
        return self.tfl.op(self.name, operands, shape, self.dtype, **attributes)


def sizes(tensor: Tensor) -> Sizes:
    """Return the shape of a tensor whose sizes are known."""
    return tuple(ir.RankedTensorType(tensor.type).shape)


def is_tensor(tensor: Tensor) -> bool:
    """Return whether it is no absent operand."""
    return isinstance(tensor.type, ir.RankedTensorType)


def is_open(tensor: Tensor) -> bool:
    return is_tensor(tensor) and not ir.RankedTensorType(tensor.type).has_static_shape


def maker(tensor: Tensor) -> ir.Operation | None:
    """Return the operation that computes a tensor, None for an argument."""
    return None if isinstance(tensor.owner, ir.Block) else tensor.owner.operation


def is_constant(tensor: Tensor) -> bool:
    made_by = maker(tensor)
    return made_by is not None and made_by.name in CONSTANTS


def elements(tensor: Tensor) -> Array | None:
    """Return the elements of a constant; None for any other tensor."""
    made_by = maker(tensor)
    if made_by is None or made_by.name not in CONSTANTS:
        return None
    stored = made_by.attributes["value"]
    shape = sizes(tensor)
    if isinstance(ir.RankedTensorType(tensor.type).element_type, ir.IntegerType) and (
        ir.IntegerType(ir.RankedTensorType(tensor.type).element_type).width == 1
    ):
        flags = np.fromiter((bool(each) for each in stored), bool, count=-1)
        return np.broadcast_to(flags.reshape(shape) if flags.size == np.prod(shape) else flags, shape)
    return np.asarray(stored).reshape(shape)
