"""Einsum: transposes, sums, and matrix products of two operands at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.dims import Size, multiplied, reshaped, size_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.einsum import letters_of
from onnxport.converters.lowering import NodeView


@dataclass(frozen=True)
class _Term:
    """An operand and the letter of each of its axes."""

    letters: str
    value: Value


@lower("Einsum")
def einsum(node: NodeView[Value], mil: MilBuilder) -> None:
    """The sum over repeated letters (ONNX Einsum-12)."""
    _Equation(node, mil).run()


class _Equation:
    def __init__(self, node: NodeView[Value], mil: MilBuilder) -> None:
        self.node, self.mil = node, mil
        values = node.rest()
        operands, self.result = letters_of(node.attribute("equation"), [value.rank for value in values])
        self.terms = [
            self._without_repeats(_Term(letters, value))
            for letters, value in zip(operands, values, strict=True)
        ]
        self.sizes: dict[str, Size] = {}
        for letter in sorted(set("".join(operands))):
            self.sizes[letter] = self._size(letter)

    def run(self) -> None:
        self.terms = [self._without_units(term) for term in self.terms]
        terms = [
            self._summed(term, self.result + "".join(t.letters for t in self.terms if t is not term))
            for term in self.terms
        ]
        whole, *others = terms
        for place, other in enumerate(others, start=1):
            left = self.result + "".join(term.letters for term in terms[place + 1 :])
            whole = self._multiplied(whole, other, left)
        value = self._arranged(self._summed(whole, self.result), self.result)
        self.node.emit(
            self.mil.identity(x=value) if any(value is each for each in self.node.rest()) else value
        )

    # ---- reading

    def _size(self, letter: str) -> Size:
        """The size that all operands have along a letter, those of size 1 repeated."""
        where = [(term.value, term.letters.index(letter)) for term in self.terms if letter in term.letters]
        known = {value.shape[axis] for value, axis in where} - {None, 1}
        if len(known) > 1:
            self.node.unsupported(f"has an axis {letter!r} of sizes {sorted(str(each) for each in known)}")
        if known:
            return next(size for size in known if size is not None)
        open_ = [(value, axis) for value, axis in where if value.shape[axis] is None]
        return size_of(self.mil, *open_[0]) if open_ else 1

    def _without_repeats(self, term: _Term) -> _Term:
        """The term with each letter on one axis: the diagonal of those that it has twice."""
        while len(set(term.letters)) < len(term.letters):
            term = self._diagonal(term)
        return term

    def _diagonal(self, term: _Term) -> _Term:
        mil, letters = self.mil, term.letters
        letter = next(each for each in letters if letters.count(each) > 1)
        first = letters.index(letter)
        second = letters.index(letter, first + 1)
        size = term.value.shape[first]
        if size is None or size != term.value.shape[second]:
            self.node.unsupported(
                f"takes a diagonal ({letter!r}) of an open size; fix it with --shape NAME=..."
            )
        others = [axis for axis in range(term.value.rank) if axis not in (first, second)]
        square = mil.transpose(x=term.value, perm=[*others, first, second])
        flat = reshaped(mil, square, [*(size_of(mil, term.value, axis) for axis in others), size * size])
        places = (np.arange(size) * (size + 1)).astype(np.int32)
        picked = mil.gather(x=flat, indices=places, axis=len(others))
        return _Term("".join(letters[axis] for axis in others) + letter, picked)

    def _without_units(self, term: _Term) -> _Term:
        """The term without axes of size 1 that repeat along another operand's."""
        gone = [
            axis
            for axis, letter in enumerate(term.letters)
            if term.value.shape[axis] == 1
            and self.sizes[letter] != 1
            and any(letter in other.letters for other in self.terms if other is not term)
        ]
        if not gone:
            return term
        kept = "".join(letter for axis, letter in enumerate(term.letters) if axis not in gone)
        return _Term(kept, self.mil.squeeze(x=term.value, axes=gone))

    # ---- computing

    def _summed(self, term: _Term, wanted: str) -> _Term:
        """The term without the letters that nothing else has."""
        gone = [axis for axis, letter in enumerate(term.letters) if letter not in wanted]
        if not gone:
            return term
        letters = "".join(letter for letter in term.letters if letter in wanted)
        return _Term(letters, self.mil.reduce_sum(x=term.value, axes=gone, keep_dims=False))

    def _arranged(self, term: _Term, letters: str) -> Value:
        if term.letters == letters:
            return term.value
        perm = [term.letters.index(letter) for letter in letters]
        return self.mil.transpose(x=term.value, perm=perm)  # type: ignore[no-any-return]

    def _multiplied(self, a: _Term, b: _Term, wanted: str) -> _Term:
        """The product, summed over the letters that both have and nothing else wants."""
        batch = "".join(letter for letter in a.letters if letter in b.letters and letter in wanted)
        inner = "".join(letter for letter in a.letters if letter in b.letters and letter not in wanted)
        rows = "".join(letter for letter in a.letters if letter not in b.letters)
        columns = "".join(letter for letter in b.letters if letter not in a.letters)
        left, right = self._as_matrix(a, batch, rows, inner), self._as_matrix(b, batch, inner, columns)
        value = self.mil.matmul(x=left, y=right) if inner else self.mil.mul(x=left, y=right)
        letters = batch + rows + columns
        return _Term(letters, reshaped(self.mil, value, [self.sizes[letter] for letter in letters]))

    def _as_matrix(self, term: _Term, batch: str, rows: str, columns: str) -> Value:
        """The term as [batch, rows, columns], each a product of sizes."""
        value = self._arranged(term, batch + rows + columns)
        groups = [
            multiplied(self.mil, [self.sizes[letter] for letter in group]) for group in (batch, rows, columns)
        ]
        return reshaped(self.mil, value, groups)
