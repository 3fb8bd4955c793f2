"""Partial evaluation of shape arithmetic when some dimensions are open.

Shape of [N, 3, 320, 320] is not a constant, but its element 2 is. A value whose elements are all known can be
folded; a Reshape target known in part gives a rank and most dimensions. Elements are an object array of numbers,
symbols ("N") and None for unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil, floor, prod
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.formats.artifact import Dim
from onnxport.formats.model import dims_of

# Shape arithmetic works on a few numbers; anything longer is data.
_MAX_ELEMENTS = 64

Partial = np.ndarray[Any, np.dtype[Any]]  # dtype object, elements int | float | str | None


class Dimensions:
    """The known elements of a graph's small values."""

    def __init__(self, graph: ir.Graph) -> None:
        self._partials: dict[ir.Value, Partial] = {}
        for node in graph:
            if node.domain in ("", "ai.onnx") and node.op_type in _RULES and len(node.outputs) == 1:
                self._follow(node)

    def _follow(self, node: ir.Node) -> None:
        operands = [None if value is None else _partial(value, self._partials) for value in node.inputs]
        if node.op_type not in ("Shape", "Size") and any(operand is None for operand in operands):
            return
        try:
            result = _RULES[node.op_type](node, operands)  # type: ignore[arg-type]
        except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
            return  # a form of the op that no shape arithmetic uses
        if result is not None and result.size <= _MAX_ELEMENTS and _fits_int64(result):
            self._partials[node.outputs[0]] = result

    def known_values(self) -> dict[ir.Value, Partial]:
        """Return the node results of which every element is a number."""
        return {
            value: partial
            for value, partial in self._partials.items()
            if not any(element is None or isinstance(element, str) for element in partial.flat)
        }

    def elements(self, value: ir.Value) -> Partial | None:
        """Return the elements of a small value: each a number, a symbol, or None."""
        return _partial(value, self._partials)

    def result_shape(self, node: ir.Node) -> list[Dim] | None:
        """Return the known dimensions of the result of an operator in TARGETED."""
        target = node.inputs[0 if node.op_type == "ConstantOfShape" else 1]
        partial = None if target is None else _partial(target, self._partials)
        if partial is None:
            partial = _unknown(target)
        if partial is None or partial.ndim != 1:  # a target of another rank is the runtime's to refuse
            return None
        elements: list[Dim] = partial.tolist()
        source = node.inputs[0]
        if node.op_type == "ConstantOfShape" or source is None:
            return elements
        before = None if source.shape is None else list(dims_of(source))
        if node.op_type == "Reshape":
            return _reshape_dims(before, elements, node)
        if before is None:
            return None
        missing: list[Dim] = [1] * abs(len(before) - len(elements))
        short, long = sorted((before, elements), key=len)
        return list(map(_broadcast, missing + short, long))


# Ops that take the dimensions of their result as an operand.
TARGETED = frozenset("ConstantOfShape Expand Reshape".split())


def _broadcast(a: Dim, b: Dim) -> Dim:
    if a == 1 or a == b:
        return b
    if b == 1:
        return a
    # Of two that differ one is 1, or else the model is wrong: a number above 1 is the result's.
    return next((dim for dim in (a, b) if isinstance(dim, int)), None)


def _reshape_dims(before: list[Dim] | None, target: list[Dim], node: ir.Node) -> list[Dim]:
    """Apply ONNX Reshape's rules: 0 copies (unless allowzero), -1 takes the rest."""
    if not node.attributes.get_int("allowzero", 0):
        target = [
            (before[i] if before is not None and i < len(before) else None) if dim == 0 else dim
            for i, dim in enumerate(target)
        ]
    rest = [dim for dim in target if dim != -1]
    left = None if before is None else _quotient(before, rest)
    return [left if dim == -1 else dim for dim in target]


def _quotient(whole: list[Dim], parts: list[Dim]) -> Dim:
    """Return the dimension that `parts` lack to have as many elements as `whole`; None where that is open."""
    if None in whole or None in parts:
        return None
    symbols = Counter(dim for dim in whole if isinstance(dim, str))
    taken = Counter(dim for dim in parts if isinstance(dim, str))
    if taken - symbols:
        return None
    symbols -= taken
    size = prod(dim for dim in whole if isinstance(dim, int))
    by = prod(dim for dim in parts if isinstance(dim, int))
    if not by or size % by:
        return None
    if not symbols:
        return size // by
    return next(iter(symbols)) if symbols.total() == 1 and size == by else None


def _partial(value: ir.Value, partials: dict[ir.Value, Partial]) -> Partial | None:
    if value in partials:
        return partials[value]
    tensor = value.const_value
    if tensor is None or tensor.size > _MAX_ELEMENTS or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy().astype(object)


def _unknown(value: ir.Value | None) -> Partial | None:
    """Return the elements of a value of which no more is known than their number: a target's is a rank."""
    dims = () if value is None or value.shape is None else dims_of(value)
    if len(dims) != 1 or not isinstance(dims[0], int) or dims[0] > _MAX_ELEMENTS:
        return None
    return np.full(dims, None, object)


def _shape(node: ir.Node, operands: Sequence[Partial]) -> Partial | None:
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    dims = list(dims_of(source))
    end = node.attributes.get_int("end")
    return np.array(dims[node.attributes.get_int("start", 0) : end], object)


def _is_integral(partial: Partial) -> bool:
    return all(isinstance(element, int) for element in partial.flat)


def _fits_int64(partial: Partial) -> bool:
    """Return whether ONNX has these integers; Python's would grow until they fill the memory."""
    return all(not isinstance(element, int) or -(2**63) <= element < 2**63 for element in partial.flat)


def _range(node: ir.Node, operands: Sequence[Partial]) -> Partial | None:
    if not all(map(_is_integral, operands)):
        return None
    numbers = range(*(bound.item() for bound in operands))
    return np.array(numbers, object) if len(numbers) <= _MAX_ELEMENTS else None


def _size(node: ir.Node, operands: Sequence[Partial]) -> Partial | None:
    """Return the element count of a followed value, or of one whose dimensions are all numbers."""
    source = node.inputs[0]
    if operands[0] is not None:
        return np.array(operands[0].size, object)
    dims = np.array([None] if source is None or source.shape is None else dims_of(source), object)
    return np.array(prod(dims.tolist()), object) if _is_integral(dims) else None


def _constant_of_shape(node: ir.Node, operands: Sequence[Partial]) -> Partial | None:
    sizes = operands[0].tolist()
    if not _is_integral(operands[0]) or prod(sizes) > _MAX_ELEMENTS:
        return None
    value = node.attributes["value"].as_tensor().numpy() if "value" in node.attributes else np.zeros(1)
    return np.full(sizes, value.reshape(()).item(), object)


def _equal(a: Any, b: Any) -> bool | None:
    """Compare elements: a dimension equals itself and no negative number."""
    if a is None or b is None:
        return None
    if isinstance(a, str) and isinstance(b, str):
        return True if a == b else None
    number = next((each for each in (a, b) if not isinstance(each, str)), 0)
    return a == b if not isinstance(a, str) and not isinstance(b, str) else (False if number < 0 else None)


def _slice(node: ir.Node, operands: Sequence[Partial]) -> Partial:
    data, starts, ends, *rest = operands
    axes = rest[0].tolist() if rest else range(len(starts))
    steps = rest[1].tolist() if len(rest) > 1 else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, end, step)
    return data[tuple(index)]


def _axes(node: ir.Node, operands: Sequence[Partial]) -> tuple[int, ...] | None:
    """Return the axes: an input since opset 13, an attribute before."""
    if len(operands) > 1:
        return tuple(operands[1].reshape(-1).tolist())
    axes = node.attributes.get_ints("axes")
    return None if axes is None else tuple(axes)


def _cast(node: ir.Node, operands: Sequence[Partial]) -> Partial | None:
    dtype = ir.DataType(node.attributes.get_int("to", 1))
    if dtype.is_integer():
        convert: Callable[[Any], Any] = int
    elif dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        convert = float
    else:
        return None
    # A symbol stays itself: a dimension that a Cast could not carry would not fit a shape either.
    return np.array(
        [e if e is None or isinstance(e, str) else convert(e) for e in operands[0].flat], object
    ).reshape(operands[0].shape)


def _reduce_prod(node: ir.Node, operands: Sequence[Partial]) -> Partial | None:
    if len(operands) > 1 or operands[0].ndim != 1:
        return None
    total = np.array(_product(operands[0].tolist()), object)
    return total.reshape(1) if node.attributes.get_int("keepdims", 1) else total


def _product(elements: Sequence[Dim]) -> Dim:
    """Return the product of dimensions: a number, a symbol times 1, or None."""
    symbols = [element for element in elements if not isinstance(element, int)]
    size = prod(element for element in elements if isinstance(element, int))
    return (symbols[0] if len(symbols) == size == 1 else None) if symbols else size


def _symbolic(function: Callable[..., Any]) -> Callable[[ir.Node, Sequence[Partial]], Partial]:
    """Return an elementwise rule for numbers, symbols and unknowns."""
    return lambda node, operands: np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), object)


def _elementwise(function: Callable[..., Any]) -> Callable[[ir.Node, Sequence[Partial]], Partial]:
    """Return an elementwise rule for numbers; unknown where an operand is none."""
    return _symbolic(
        lambda *elements: function(*elements) if all(isinstance(e, int | float) for e in elements) else None
    )


def _divide(a: float, b: float) -> float:
    """Divide as ONNX's Div: integers truncate toward zero."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return float(np.float32(a) / np.float32(b))


_RULES: dict[str, Callable[[ir.Node, Sequence[Partial]], Partial | None]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Cast": _cast,
    "Ceil": _elementwise(lambda a: float(ceil(a))),
    "Concat": lambda node, operands: np.concatenate(operands, node.attributes.get_int("axis", 0)),
    "ConstantOfShape": _constant_of_shape,
    "Div": _elementwise(_divide),
    "Equal": _symbolic(_equal),
    "Floor": _elementwise(lambda a: float(floor(a))),
    "Gather": lambda node, operands: np.asarray(
        np.take(operands[0], operands[1].astype(int), node.attributes.get_int("axis", 0)), object
    ),
    "Identity": lambda node, operands: operands[0],
    "Max": _elementwise(max),
    "Min": _elementwise(min),
    "Mul": _elementwise(lambda a, b: a * b),
    "Range": _range,
    "ReduceProd": _reduce_prod,
    "Reshape": lambda node, operands: operands[0].reshape(operands[1].tolist()),
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": lambda node, operands: np.asarray(np.squeeze(operands[0], _axes(node, operands)), object),
    "Sub": _elementwise(lambda a, b: a - b),
    "Unsqueeze": lambda node, operands: np.expand_dims(operands[0], _axes(node, operands) or ()),
    "Where": _symbolic(lambda holds, a, b: (a if a == b else None) if holds is None else a if holds else b),
}
