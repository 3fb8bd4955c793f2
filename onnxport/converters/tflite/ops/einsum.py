"""Einsum of one or two operands: transposes, sums, and one matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from onnxport.converters.einsum import letters_of
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import Shape
from onnxport.converters.tflite.ops.matmul import product
from onnxport.converters.tflite.ops.reduction import reduce_axes
from onnxport.converters.tflite.ops.reshape import reshaped, transposed
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value


@dataclass(frozen=True)
class _Term:
    """An operand and the letter of each of its axes."""

    letters: str
    value: Value

    def size(self, letter: str) -> int | None:
        return self.value.shape[self.letters.index(letter)]


@lower("Einsum")
def einsum(node: TflNode, tfl: TflBuilder) -> None:
    """The sum over repeated letters (ONNX Einsum-12)."""
    values = node.rest()
    terms, result = _parsed(node, tfl, values)
    kept = [_summed(tfl, term, result + "".join(t.letters for t in terms if t is not term)) for term in terms]
    if len(kept) == 1:
        node.emit(_arranged(tfl, kept[0], result))
    elif len(kept) == 2:
        node.emit(_arranged(tfl, _multiplied(node, tfl, kept[0], kept[1], result), result))
    else:
        node.unsupported(f"{len(kept)} operands; split it into products of two")


def _parsed(node: TflNode, tfl: TflBuilder, values: list[Value]) -> tuple[list[_Term], str]:
    """The operands' letters and the result's, an ellipsis written out."""
    operands, result = letters_of(node.attribute("equation"), [value.rank for value in values])
    terms = []
    for letters, value in zip(operands, values, strict=True):
        term = _Term(letters, value)
        while len(set(term.letters)) < len(term.letters):
            term = _diagonal(node, tfl, term)
        terms.append(term)
    every = "".join(term.letters for term in terms)
    for letter in set(every):
        sizes = {size for term in terms if letter in term.letters and (size := term.size(letter)) is not None}
        if len(sizes) > 1:
            node.unsupported(f"an axis {letter!r} of sizes {sorted(sizes)}, which it would broadcast")
    return terms, result


def _diagonal(node: TflNode, tfl: TflBuilder, term: _Term) -> _Term:
    """The term with the first letter that it has twice on one axis, its last."""
    letter = next(letter for letter in term.letters if term.letters.count(letter) > 1)
    first = term.letters.index(letter)
    second = term.letters.index(letter, first + 1)
    size, others = term.size(letter), [a for a in range(term.value.rank) if a not in (first, second)]
    if size is None or size != term.value.shape[second]:
        node.unsupported(
            f"a diagonal ({letter!r}) of an open size; fix the input's size with --shape NAME=..."
        )
    leading = tuple(term.value.shape[axis] for axis in others)
    square = transposed(tfl, term.value, (*others, first, second))
    flat = _reshaped(node, tfl, square, (*leading, size * size))
    places = tfl.int32(np.arange(size) * (size + 1))
    operands, axis = [tfl.tensor(flat), places], len(others)
    picked = tfl.op("gather", operands, (*leading, size), axis=axis, batch_dims=0)
    return _Term("".join(term.letters[axis] for axis in others) + letter, tfl.computed(picked))


def _summed(tfl: TflBuilder, term: _Term, wanted: str) -> _Term:
    """The term without the letters that nothing else has."""
    gone = [axis for axis, letter in enumerate(term.letters) if letter not in wanted]
    if not gone:
        return term
    letters = "".join(letter for letter in term.letters if letter in wanted)
    return _Term(letters, reduce_axes(tfl, "sum", term.value, gone, keep=False))


def _arranged(tfl: TflBuilder, term: _Term, letters: str) -> Value:
    if term.letters == letters:
        return term.value
    return transposed(tfl, term.value, tuple(term.letters.index(letter) for letter in letters))


def _multiplied(node: TflNode, tfl: TflBuilder, a: _Term, b: _Term, result: str) -> _Term:
    """The product over the letters that both have and the result has not."""
    batch = "".join(letter for letter in a.letters if letter in b.letters and letter in result)
    inner = "".join(letter for letter in a.letters if letter in b.letters and letter not in result)
    rows = "".join(letter for letter in a.letters if letter not in b.letters)
    columns = "".join(letter for letter in b.letters if letter not in a.letters)
    left = _as_matrix(node, tfl, a, batch, rows, inner)
    right = _as_matrix(node, tfl, b, batch, inner, columns)
    value = product(tfl, left, right)
    shape: Shape = (
        *(a.size(letter) for letter in batch + rows),
        *(b.size(letter) for letter in columns),
    )
    return _Term(batch + rows + columns, _reshaped(node, tfl, value, shape))


def _as_matrix(node: TflNode, tfl: TflBuilder, term: _Term, batch: str, rows: str, columns: str) -> Value:
    """The term as [batch..., rows, columns], each a product of sizes."""
    value = _arranged(tfl, term, batch + rows + columns)
    shape = (
        *(term.size(letter) for letter in batch),
        _product([term.size(letter) for letter in rows]),
        _product([term.size(letter) for letter in columns]),
    )
    return _reshaped(node, tfl, value, shape)


def _product(sizes: list[int | None]) -> int | None:
    return None if None in sizes else prod(size or 0 for size in sizes)


def _reshaped(node: TflNode, tfl: TflBuilder, value: Value, shape: Shape) -> Value:
    if value.shape == shape:
        return value
    if shape.count(None) > 1:
        node.unsupported("several open dimensions in one product; fix the input's size with --shape NAME=...")
    return reshaped(tfl, value, shape)
