"""Class probabilities from the probabilities of class pairs.

Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling" (2004), second method,
with the iteration and stop rule of LIBSVM and ONNX Runtime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.registry import Rewrite

_MOST_CLASSES = 10
# Most inputs converge in 3 rounds, thousands of random ones in 4.
_ROUNDS = 6
_LEAST = np.float32(1e-7)


def probabilities(
    node: Rewrite, total: ir.Value, sigmoid: list[Array], pairs: list[tuple[int, int]], classes: int
) -> ir.Value:
    """Return the probability of each class, [rows, classes]."""
    if classes > _MOST_CLASSES:
        node.unsupported(f"probabilities of {classes} classes; at most {_MOST_CLASSES} are unrolled")
    slope, offset = sigmoid
    exponent = node.op("Add", node.op("Mul", total, slope), offset)
    likely = node.op("Clip", node.op("Sigmoid", node.op("Neg", exponent)), _LEAST, np.float32(1) - _LEAST)
    return _Coupling(node, likely, pairs, classes).solve()


class _Coupling:
    """The p that minimizes p' Q p, where Q follows from the pairs' probabilities."""

    def __init__(self, node: Rewrite, likely: ir.Value, pairs: list[tuple[int, int]], classes: int) -> None:
        self.node, self.classes = node, classes
        both = node.op("Concat", likely, node.op("Sub", np.float32(1), likely), axis=1)
        count = len(pairs)
        place = {pair: column for column, pair in enumerate(pairs)}
        place |= {(j, i): column + count for (i, j), column in place.items()}
        # r[i, j], 0 on the diagonal: a column of zeros is appended to those of the pairs.
        zero = node.op("Mul", node.op("Slice", both, *_at(0)), np.float32(0))
        padded = node.op("Concat", both, zero, axis=1)
        index = [[place.get((i, j), 2 * count) for j in range(classes)] for i in range(classes)]
        r = node.op("Gather", padded, np.array(index), axis=1)
        turned = node.op("Transpose", r, perm=[0, 2, 1])
        squares = node.op("ReduceSum", node.op("Mul", r, r), np.array([1]), keepdims=0)
        squares = node.op("Unsqueeze", squares, np.array([2]))
        diagonal = node.op("Mul", squares, np.eye(classes, dtype=np.float32))
        self.q = node.op("Sub", diagonal, node.op("Mul", turned, r))
        rows = (node.op("Slice", self.q, *_at(i)) for i in range(classes))
        self.rows = [node.op("Squeeze", row, np.array([1])) for row in rows]

    def solve(self) -> ir.Value:
        node = self.node
        p = node.op("Add", node.op("Mul", self.rows[0], np.float32(0)), np.float32(1 / self.classes))
        limit = np.float32(0.005 / self.classes)
        for _ in range(_ROUNDS):
            column = node.op("Unsqueeze", p, np.array([2]))
            product = node.op("Squeeze", node.op("MatMul", self.q, column), np.array([2]))
            value = node.op("ReduceSum", node.op("Mul", p, product), np.array([1]))
            error = node.op("ReduceMax", node.op("Abs", node.op("Sub", product, value)), np.array([1]))
            p = node.op("Where", node.op("Less", error, limit), p, self._round(p, product, value))
        return p

    def _round(self, p: Any, product: Any, value: Any) -> Any:
        """Move each class's probability to its optimum while the others keep their proportions."""
        node = self.node
        for i, row in enumerate(self.rows):
            own, here = (node.op("Slice", each, *_at(i)) for each in (row, product))
            step = node.op("Div", node.op("Sub", value, here), own)
            unit = np.eye(self.classes, dtype=np.float32)[i : i + 1]
            whole = node.op("Add", step, np.float32(1))
            gain = node.op("Add", node.op("Mul", step, own), node.op("Mul", here, np.float32(2)))
            value = node.op("Add", value, node.op("Mul", step, gain))
            value = node.op("Div", node.op("Div", value, whole), whole)
            p = node.op("Div", node.op("Add", p, node.op("Mul", step, unit)), whole)
            product = node.op("Div", node.op("Add", product, node.op("Mul", step, row)), whole)
        return p


def _at(column: int) -> tuple[Array, Array, Array]:
    """Return the operands of a Slice of one column."""
    return np.array([column]), np.array([column + 1]), np.array([1])
