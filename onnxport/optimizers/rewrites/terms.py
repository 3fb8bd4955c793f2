"""Rewrites as formulas: arithmetic on terms, each operator one ONNX node (see registry.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arithmetic import Arithmetic
from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.registry import Rewrite, rewrites


class Term(Arithmetic["Operand"]):
    """A value of the graph in arithmetic; numbers and arrays beside it become constants of its type."""

    def __init__(self, draft: Draft, value: ir.Value, dtype: np.dtype[Any] | type) -> None:
        self.draft, self.value, self.dtype = draft, value, np.dtype(dtype)

    def binary(self, op: str, other: Operand, /, *, swapped: bool = False) -> Term:
        if swapped:
            return self.draft.op(_ONNX[op], self.draft.term(other, self.dtype), self)
        return self.draft.op(_ONNX[op], self, other)

    def __neg__(self) -> Term:
        return self.draft.op("Neg", self)

    def call(self, op: str, *others: Operand, **attributes: Any) -> Term:
        return self.draft.op(op, self, *others, **attributes)

    def cast(self, dtype: np.dtype[Any] | type) -> Term:
        if self.dtype == np.dtype(dtype):
            return self
        to = ir.DataType.from_numpy(np.dtype(dtype)).value
        return self.draft.op("Cast", self, dtype=dtype, to=to)

    def where(self, then: Operand, otherwise: Operand, dtype: np.dtype[Any] | type = np.float32) -> Term:
        """Return `then` where this condition holds, `otherwise` elsewhere."""
        kind = next((o.dtype for o in (then, otherwise) if isinstance(o, Term)), np.dtype(dtype))
        terms = (self.draft.term(each, kind) for each in (then, otherwise))
        return self.draft.op("Where", self, *terms, dtype=kind)

    # ---- arrangement

    def reshape(self, *shape: int | Term) -> Term:
        """Reshape to `shape`: one size may be -1, any may be computed."""
        return self.draft.op("Reshape", self, self.draft.sizes(shape), allowzero=0)

    def transpose(self, *perm: int) -> Term:
        return self.draft.op("Transpose", self, perm=list(perm))

    def unsqueeze(self, *axes: int) -> Term:
        return self.draft.op("Unsqueeze", self, np.array(axes, np.int64))

    def squeeze(self, *axes: int) -> Term:
        return self.draft.op("Squeeze", self, np.array(axes, np.int64))

    def gather(self, indices: Operand, axis: int = 0) -> Term:
        return self.draft.op("Gather", self, self.draft.term(indices, np.int64), axis=axis)

    def cut(self, axis: int, start: int | Term, end: int | Term, step: int = 1) -> Term:
        """Return the elements from `start` to `end` of an axis, as Slice counts them."""
        bounds = [self.draft.sizes([bound]) for bound in (start, end)]
        return self.draft.op("Slice", self, *bounds, np.array([axis], np.int64), np.array([step], np.int64))

    def sum(self, *axes: int, keep: bool = False) -> Term:
        return self.draft.op("ReduceSum", self, np.array(axes, np.int64), keepdims=int(keep))

    def mean(self, *axes: int, keep: bool = False) -> Term:
        return self.draft.op("ReduceMean", self, np.array(axes, np.int64), keepdims=int(keep))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The inferred dimensions, for an operand of the node alone: new terms have none yet."""
        return self.draft.node.shape(self.value)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def size(self, axis: int) -> int | Term:
        """Return a dimension: the number if it is known, else int32 of rank 0, computed."""
        known = self.shape[axis]
        if known is not None:
            return known
        whole = self.draft.op("Shape", self, dtype=np.int64)
        return whole.gather(np.array(axis % self.rank, np.int64)).cast(np.int32)


Operand = Term | Array | np.generic | float | int

# Operations of Arithmetic -> ONNX operators.
_ONNX = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "equal": "Equal",
    "logical_and": "And",
}
_COMPARISONS = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual And Or Not".split())


class Draft:
    """One node under rewriting: its operands as terms, and new terms."""

    def __init__(self, node: Rewrite) -> None:
        self.node = node
        self.attribute, self.ignore, self.unsupported = node.attribute, node.ignore, node.unsupported
        self._constants: dict[tuple[bytes, tuple[int, ...], str], Term] = {}

    # ---- the node

    def input(self, index: int) -> Term:
        value = self.node.input(index)
        self.node.shape(value)  # to come back later where the rank is not known yet
        return Term(self, value, self.node.dtype(value))

    def optional(self, index: int) -> Term | None:
        return None if self.node.optional(index) is None else self.input(index)

    def constant_input(self, index: int) -> Array | None:
        """Return the operand's elements if they are known at conversion."""
        value = self.node.optional(index)
        return None if value is None or value.const_value is None else value.const_value.numpy()

    # ---- new nodes

    def op(self, name: str, *operands: Operand | None, dtype: Any = None, **attributes: Any) -> Term:
        """Add a node with one result; its type is the first operand's unless `dtype` is given."""
        kind = next(o.dtype for o in operands if isinstance(o, Term))
        terms = [None if o is None else self.term(o, kind) for o in operands]
        value = self.node.op(name, *(None if term is None else term.value for term in terms), **attributes)
        return Term(self, value, np.dtype(bool) if name in _COMPARISONS else np.dtype(dtype or kind))

    def term(self, operand: Operand, dtype: np.dtype[Any] | type = np.float32) -> Term:
        """Return an operand as a term; arrays keep their own type, numbers take `dtype`."""
        if isinstance(operand, Term):
            return operand
        array = operand if isinstance(operand, np.ndarray) else np.array(operand, dtype)
        key = (array.tobytes(), array.shape, array.dtype.str)
        if key not in self._constants:
            self._constants[key] = Term(self, self.node.array(array), array.dtype)
        return self._constants[key]

    def sizes(self, sizes: Sequence[int | Term]) -> Term:
        """Return sizes as a vector, int64 [n]."""
        if all(isinstance(size, int | np.integer) for size in sizes):
            return self.term(np.array(sizes, np.int64))
        parts = [
            size.cast(np.int64).reshape(1) if isinstance(size, Term) else self.sizes([size]) for size in sizes
        ]
        return self.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def range(self, count: int | Term, dtype: np.dtype[Any] | type = np.int32) -> Term:
        """Return 0, 1, ... count - 1."""
        if isinstance(count, int):
            return self.term(np.arange(count).astype(dtype))
        zero, one = (self.term(number, np.int32) for number in (0, 1))
        return self.op("Range", zero, count.cast(np.int32), one).cast(dtype)

    def number(self, size: int | Term) -> float | Term:
        """Return a size as float32."""
        return float(size) if isinstance(size, int) else size.cast(np.float32)


# A formula returns a term per output, None for one that nothing uses.
Formula = Callable[[Draft], "Sequence[Term | None]"]


def formula(op: str, form: Callable[[ir.Node], bool] | None = None) -> Callable[[Formula], Formula]:
    """Register the decorated formula for `op`; see registry.rewrites for `form`."""

    def register(function: Formula) -> Formula:
        @rewrites(op, form=form)
        def rewriting(node: Rewrite) -> None:
            for index, term in enumerate(function(Draft(node))):
                if term is not None:
                    node.emit(term.value, index)

        return function

    return register
