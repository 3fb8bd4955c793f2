"""Einsum as transposes, sums and matrix products of two operands at a time, whatever the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Generic, TypeVar

import numpy as np

from onnxport.converters.lowering import NodeView, TargetValue
from onnxport.core.arrays import Array

V = TypeVar("V", bound=TargetValue)  # a target's value
S = TypeVar("S")  # a target's size


@dataclass(frozen=True)
class Term(Generic[V]):
    """An operand and the letter of each of its axes."""

    letters: str
    value: V


def equation_letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand's axes and of the result's, with the ellipsis written out."""
    equation = equation.replace(" ", "")
    left, arrow, result = equation.partition("->")
    texts = left.split(",")
    free = [letter for letter in ascii_letters if letter not in equation]
    hidden = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    widest = max(hidden)
    operands = [
        text.replace("...", "".join(free[widest - count : widest]))
        for text, count in zip(texts, hidden, strict=True)
    ]
    if not arrow:
        # Implicit: the ellipsis, then the letters that occur once, in alphabetical order.
        result = "..." + "".join(
            sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
        )
    return operands, result.replace("...", "".join(free[:widest]))


class Einsum(ABC, Generic[V, S]):
    """The lowering of one Einsum node (ONNX Einsum-12); a target's subclass emits the operations."""

    def __init__(self, node: NodeView[V]) -> None:
        self.node = node
        self.values = node.rest()
        operands, self.result = equation_letters(
            node.attribute("equation"), [value.rank for value in self.values]
        )
        self.terms = [
            self._take_diagonals(Term(letters, value))
            for letters, value in zip(operands, self.values, strict=True)
        ]
        self.sizes = {letter: self._size(letter) for letter in sorted(set("".join(operands)))}

    def run(self) -> V:
        """Emit the operations and return the result."""
        terms = [self._squeeze_units(term) for term in self.terms]
        terms = [
            self._sum_out(term, self.result + "".join(other.letters for other in terms if other is not term))
            for term in terms
        ]
        total, *others = terms
        for number, other in enumerate(others, start=2):
            wanted = self.result + "".join(term.letters for term in terms[number:])
            total = self._multiply(total, other, wanted)
        return self._permute(self._sum_out(total, self.result), self.result)

    # ---- a target's operations

    @abstractmethod
    def size(self, value: V, axis: int) -> S:
        """Return the size of an axis, known or not."""

    @abstractmethod
    def transpose(self, value: V, perm: Sequence[int]) -> V: ...

    @abstractmethod
    def squeeze(self, value: V, axes: Sequence[int]) -> V: ...

    @abstractmethod
    def sum(self, value: V, axes: Sequence[int]) -> V: ...

    @abstractmethod
    def reshape(self, value: V, sizes: Sequence[S | int]) -> V: ...

    @abstractmethod
    def gather(self, value: V, indices: Array, axis: int) -> V: ...

    @abstractmethod
    def matrix(self, value: V, batch: Sequence[S], rows: Sequence[S], columns: Sequence[S]) -> V:
        """Reshape to matrices for `multiply`."""

    @abstractmethod
    def multiply(self, left: V, right: V, *, is_outer: bool) -> V:
        """Multiply matrices; `is_outer` if those on the left have one column."""

    def length(self, term: Term[V], letter: str) -> S:
        """Return the size of a term's axis, broadcast with the other terms'."""
        return self.sizes[letter]

    # ---- the plan

    def _size(self, letter: str) -> S:
        axes = [(term.value, term.letters.index(letter)) for term in self.terms if letter in term.letters]
        known = {value.shape[axis] for value, axis in axes} - {None, 1}
        if len(known) > 1:
            self.node.unsupported(f"has an axis {letter!r} of sizes {sorted(str(each) for each in known)}")
        # A known size decides, then an open one: axes of size 1 repeat.
        wanted = next(iter(known), None if any(value.shape[axis] is None for value, axis in axes) else 1)
        return self.size(*next(each for each in axes if each[0].shape[each[1]] == wanted))

    def _take_diagonals(self, term: Term[V]) -> Term[V]:
        """Replace two axes of one letter by their diagonal, until each letter has one axis."""
        letters, value = term.letters, term.value
        if len(set(letters)) == len(letters):
            return term
        letter = next(each for each in letters if letters.count(each) > 1)
        first = letters.index(letter)
        second = letters.index(letter, first + 1)
        size = value.shape[first]
        if size is None or size != value.shape[second]:
            self.node.unsupported(
                f"takes a diagonal ({letter!r}) with an open size; fix it with --shape NAME=..."
            )
        others = [axis for axis in range(value.rank) if axis not in (first, second)]
        square = self.transpose(value, [*others, first, second])
        flat = self.reshape(square, [*(self.size(value, axis) for axis in others), size * size])
        diagonal = self.gather(flat, np.arange(size) * (size + 1), len(others))
        return self._take_diagonals(Term("".join(letters[axis] for axis in others) + letter, diagonal))

    def _squeeze_units(self, term: Term[V]) -> Term[V]:
        """Remove axes of size 1 that repeat along another term's."""
        units = [
            axis
            for axis, letter in enumerate(term.letters)
            if term.value.shape[axis] == 1
            and self.sizes[letter] != 1
            and any(letter in other.letters for other in self.terms if other is not term)
        ]
        if not units:
            return term
        kept = "".join(letter for axis, letter in enumerate(term.letters) if axis not in units)
        return Term(kept, self.squeeze(term.value, units))

    def _sum_out(self, term: Term[V], wanted: str) -> Term[V]:
        """Sum over the letters that are not `wanted`."""
        axes = [axis for axis, letter in enumerate(term.letters) if letter not in wanted]
        if not axes:
            return term
        kept = "".join(letter for letter in term.letters if letter in wanted)
        return Term(kept, self.sum(term.value, axes))

    def _permute(self, term: Term[V], letters: str) -> V:
        if term.letters == letters:
            return term.value
        return self.transpose(term.value, [term.letters.index(letter) for letter in letters])

    def _multiply(self, a: Term[V], b: Term[V], wanted: str) -> Term[V]:
        """Multiply two terms and sum over the letters that both have and that are not `wanted`."""
        batch = "".join(letter for letter in a.letters if letter in b.letters and letter in wanted)
        inner = "".join(letter for letter in a.letters if letter in b.letters and letter not in wanted)
        rows = "".join(letter for letter in a.letters if letter not in b.letters)
        columns = "".join(letter for letter in b.letters if letter not in a.letters)
        left, right = self._as_matrix(a, batch, rows, inner), self._as_matrix(b, batch, inner, columns)
        value = self.multiply(left, right, is_outer=not inner)
        sizes = [
            *(self.length(a, letter) for letter in batch + rows),
            *(self.length(b, letter) for letter in columns),
        ]
        return Term(batch + rows + columns, self.reshape(value, sizes))

    def _as_matrix(self, term: Term[V], *groups: str) -> V:
        value = self._permute(term, "".join(groups))
        return self.matrix(value, *([self.length(term, letter) for letter in group] for group in groups))
