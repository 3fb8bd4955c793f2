"""Recognize functions that a file computes by other operators: by their values, whatever the formula is.

    Given   min(max(x, -c), c) = u; u * p(u * u) / q(u * u)      Result  Erf(x)

A compiler without an operator for a function writes a quotient of polynomials. Its operators read one value and
numbers, element by element, so the formula is a function of one number: it is computed in float32 on a dense grid, and
compared with the function there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array

# Operators of a formula, and values between its operand and its result.
_MOST, _LEAST = 64, 6
# Of erf, whose values are up to 1: float32 arithmetic of a polynomial.
_NOISE = 1e-6
_PLACES: Array = np.concatenate(
    [np.linspace(-8, 8, 32001), *(sign * np.logspace(-30, 30, 2001) for sign in (1, -1)), np.zeros(1)]
).astype(np.float32)
_ERF: Array = np.array([math.erf(float(each)) for each in _PLACES])

_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Neg": np.negative,
    "Abs": np.abs,
    "Reciprocal": np.reciprocal,
    "Identity": np.asarray,
    "Clip": lambda value, low=-np.inf, high=np.inf: np.clip(value, low, high),
}


def erf_operand(value: ir.Value, number: Callable[[ir.Value | None], float | None]) -> ir.Value | None:
    """Return the value that `value` is the error function of; None where it is none.

    Args:
        number: returns a constant of one element, None for other values.
    """
    nodes = _formula(value, number)
    if len(nodes) < _LEAST:
        return None
    for operand in _origins(value, nodes, number):
        if _is_erf(value, operand, nodes, number):
            return operand
    return None


def _formula(value: ir.Value, number: Callable[[ir.Value | None], float | None]) -> list[ir.Node]:
    """Return the operators behind a value that compute element by element, the last first."""
    found: dict[ir.Node, None] = {}
    pending = [value]
    while pending and len(found) < _MOST:
        node = pending.pop(0).producer()
        if node is None or node in found or node.op_type not in _FUNCTIONS or node.domain:
            continue
        found[node] = None
        pending += [each for each in node.inputs if each is not None and number(each) is None]
    return list(found)


def _origins(
    value: ir.Value, nodes: Sequence[ir.Node], number: Callable[[ir.Value | None], float | None]
) -> list[ir.Value]:
    """Return the values that everything in a formula is computed from, the nearest first."""
    candidates = {
        each: None for node in nodes for each in node.inputs if each is not None and number(each) is None
    }
    return [each for each in candidates if _depends_only_on(value, each, set(nodes), number)]


def _depends_only_on(
    value: ir.Value, origin: ir.Value, nodes: set[ir.Node], number: Callable[[ir.Value | None], float | None]
) -> bool:
    pending, seen = [value], set[ir.Value]()
    while pending:
        each = pending.pop()
        if each is origin or each in seen or number(each) is not None:
            continue
        seen.add(each)
        node = each.producer()
        if node is None or node not in nodes:
            return False
        pending += [operand for operand in node.inputs if operand is not None]
    return True


def _is_erf(
    value: ir.Value,
    operand: ir.Value,
    nodes: Sequence[ir.Node],
    number: Callable[[ir.Value | None], float | None],
) -> bool:
    known: dict[ir.Value, Array] = {operand: _PLACES}

    def compute(each: ir.Value) -> Array:
        if each not in known:
            constant, node = number(each), each.producer()
            if constant is not None:
                known[each] = np.asarray(constant, np.float32)
            else:
                assert node is not None
                known[each] = _FUNCTIONS[node.op_type](*(compute(i) for i in node.inputs if i is not None))
        return known[each]

    with np.errstate(all="ignore"):
        found = compute(value)
    return found.shape == _ERF.shape and bool((np.abs(found - _ERF) <= _NOISE).all())
