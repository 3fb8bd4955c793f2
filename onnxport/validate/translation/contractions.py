"""Einsum as a matrix product (ONNX Einsum-12).

    Given   Einsum(x, y), "abc,cde->abde"
    Result  MatMul(x as [a b, c], y as [c, d e]) as [a, b, d, e]

Axes of both operands and of the result count the products of a batch, axes of both that the result has not are summed
over. Equations of one operand, of an ellipsis, with a letter twice in one operand, or that sum over an axis of one
operand only stay as they are.
"""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.place import Place


def rewrite_einsum(place: Place) -> None:
    """Rewrite an Einsum of two operands of known sizes."""
    equation = place.node.attributes.get_string("equation", "").replace(" ", "")
    left, _, result = equation.partition("->")
    terms = left.split(",")
    operands = [each for each in place.node.inputs if each is not None]
    shapes = [static_sizes(each) for each in operands]
    if len(terms) != 2 or not result or "." in equation or len(operands) != 2:
        return
    known = [shape for shape in shapes if shape is not None]
    if [len(each) for each in known] != [len(each) for each in terms]:
        return
    sizes = {
        letter: size
        for term, shape in zip(terms, known, strict=True)
        for letter, size in zip(term, shape, strict=True)
    }
    batch, inner, rows, columns = _groups(terms[0], terms[1], result)
    is_plain = all(len(set(each)) == len(each) for each in (*terms, result))
    if not is_plain or {*batch, *rows, *columns} != set(result):
        return
    if any(
        shape[term.index(letter)] != sizes[letter]
        for term, shape in zip(terms, known, strict=True)
        for letter in term
    ):
        return  # one that repeats
    matrices = [
        _as_matrix(place, operands[0], terms[0], sizes, (batch, rows, inner)),
        _as_matrix(place, operands[1], terms[1], sizes, (batch, inner, columns)),
    ]
    product = place.add("MatMul", matrices)
    letters = batch + rows + columns
    found = place.reshape(product, [sizes[each] for each in letters])
    if letters != result:
        found = place.add("Transpose", [found], perm=[letters.index(each) for each in result])
    place.finish(found)


def _groups(first: str, second: str, result: str) -> tuple[str, str, str, str]:
    """Return the letters of a batch, those that are summed over, and the others of each operand."""
    both = [each for each in first if each in second]
    return (
        "".join(each for each in both if each in result),
        "".join(each for each in both if each not in result),
        "".join(each for each in first if each not in second),
        "".join(each for each in second if each not in first),
    )


def _as_matrix(
    place: Place, value: ir.Value, letters: str, sizes: dict[str, int], groups: tuple[str, str, str]
) -> ir.Value:
    """Return an operand as [batch..., rows, columns]."""
    batch, rows, columns = groups
    order = [letters.index(each) for each in batch + rows + columns]
    moved = value if order == sorted(order) else place.add("Transpose", [value], perm=order)
    shape = [
        *(sizes[each] for each in batch),
        prod(sizes[each] for each in rows),
        prod(sizes[each] for each in columns),
    ]
    return place.reshape(moved, shape)
