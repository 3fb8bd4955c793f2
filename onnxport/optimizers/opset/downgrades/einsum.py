"""Einsum as matrix products, two operands at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers, required


@dataclass(frozen=True)
class _Operand:
    """A value and the equation's letter for each of its axes."""

    value: ir.Value
    axes: str


@lowers("Einsum", version=12)
def einsum(node: Node) -> None:
    """Sum out axes that nothing needs, multiply the first two operands, and so on to the last."""
    terms, result = _parse(node.attribute("equation"))
    rest = [_Operand(required(value), axes) for value, axes in zip(node.ir.inputs, terms, strict=True)]
    product = rest.pop(0)
    while rest:
        other = rest.pop(0)
        wanted = {*result, *(axis for each in rest for axis in each.axes)}
        product = _product(
            node,
            _sum_out(node, product, {*wanted, *other.axes}),
            _sum_out(node, other, {*wanted, *product.axes}),
            wanted,
        )
    product = _sum_out(node, product, set(result))
    node.become("Identity", _transpose(node, product, result).value)


def _parse(equation: str) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    terms, count = given.split(","), Counter(given.replace(",", ""))
    if "." in equation or any(len(set(term)) < len(term) for term in terms):
        raise NoForm(f"its equation {equation!r} has an ellipsis or a diagonal, which is not supported")
    return terms, result if arrow else "".join(sorted(letter for letter in count if count[letter] == 1))


def _sum_out(node: Node, term: _Operand, wanted: set[str]) -> _Operand:
    axes = [index for index, letter in enumerate(term.axes) if letter not in wanted]
    if not axes:
        return term
    left = "".join(letter for letter in term.axes if letter in wanted)
    return _Operand(node.before("ReduceSum", term.value, axes=axes, keepdims=0), left)


def _transpose(node: Node, term: _Operand, axes: str) -> _Operand:
    if term.axes == axes:
        return term
    order = [term.axes.index(letter) for letter in axes]
    return _Operand(node.before("Transpose", term.value, perm=order), axes)


def _product(node: Node, left: _Operand, right: _Operand, wanted: set[str]) -> _Operand:
    """Multiply over the axes that both share and nothing wants, in batches over those that both keep."""
    shared = [letter for letter in left.axes if letter in right.axes]
    batch = "".join(letter for letter in shared if letter in wanted)
    inner = "".join(letter for letter in shared if letter not in wanted)
    rows = "".join(letter for letter in left.axes if letter not in shared)
    columns = "".join(letter for letter in right.axes if letter not in shared)
    left = _transpose(node, left, batch + rows + inner)
    right = _transpose(node, right, batch + inner + columns)
    shapes = [node.before("Shape", each.value) for each in (left, right)]
    matrices = [
        node.before("Reshape", term.value, _concat(node, [_sizes(node, term, shape, batch), *parts]))
        for term, shape, parts in (
            (left, shapes[0], [_count(node, left, shapes[0], rows), _count(node, left, shapes[0], inner)]),
            (
                right,
                shapes[1],
                [_count(node, right, shapes[1], inner), _count(node, right, shapes[1], columns)],
            ),
        )
    ]
    whole = _concat(
        node, [_sizes(node, left, shapes[0], batch + rows), _sizes(node, right, shapes[1], columns)]
    )
    return _Operand(node.before("Reshape", node.before("MatMul", *matrices), whole), batch + rows + columns)


def _sizes(node: Node, term: _Operand, shape: ir.Value, axes: Iterable[str]) -> ir.Value | None:
    """Return the sizes of the axes, side by side; None for no axes."""
    places = [term.axes.index(letter) for letter in axes]
    return node.before("Gather", shape, node.constant(places), axis=0) if places else None


def _count(node: Node, term: _Operand, shape: ir.Value, axes: str) -> ir.Value:
    sizes = _sizes(node, term, shape, axes)
    if sizes is None:
        return node.constant([1])
    return sizes if len(axes) == 1 else node.before("ReduceProd", sizes, axes=[0], keepdims=1)


def _concat(node: Node, parts: Sequence[ir.Value | None]) -> ir.Value:
    there = [part for part in parts if part is not None]
    if not there:
        return node.constant([])
    return there[0] if len(there) == 1 else node.before("Concat", *there, axis=0)
