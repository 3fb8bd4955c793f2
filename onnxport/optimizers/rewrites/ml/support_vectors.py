"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.ml import scores
from onnxport.optimizers.rewrites.registry import Rewrite, rewrites


@rewrites("ai.onnx.ml::SVMRegressor")
def svm_regressor(node: Rewrite) -> None:
    """Sum the weighted kernel of x with each support vector (ONNX SVMRegressor-1)."""
    x, coefficients = scores.matrix(node, 0), scores.floats(node, "coefficients")
    vectors = scores.floats(node, "support_vectors")
    rho = scores.floats(node, "rho", (0.0,))[:1]
    if node.attribute("n_supports", 0) > 0:
        similar = _kernel(node, x, vectors.reshape(node.attribute("n_supports"), -1))
        total = node.op("MatMul", similar, coefficients[:, None])
    else:
        total = _kernel(node, x, coefficients[None])
    total = node.op("Add", total, rho)
    if node.attribute("one_class", 0):
        total = node.op("Where", node.op("Greater", total, np.float32(0)), np.float32(1), np.float32(-1))
    if scores.post_transform(node) == "PROBIT":
        total = scores.transform(node, total, "PROBIT")
    node.emit(total)


@rewrites("ai.onnx.ml::SVMClassifier")
def svm_classifier(node: Rewrite) -> None:
    """Vote with one machine per class pair (ONNX SVMClassifier-1); without vectors, one per class."""
    labels, transform = scores.labels(node), scores.post_transform(node)
    if len(labels) < 2:
        node.unsupported("has a single class")
    if sum(node.attribute("vectors_per_class", ())):
        _by_pairs(node, labels, transform)
    else:
        _by_class(node, labels, transform)


def _by_class(node: Rewrite, labels: Array, transform: str) -> None:
    node.ignore("kernel_type", "support_vectors")  # ONNX Runtime takes these for linear
    coefficients = scores.floats(node, "coefficients").reshape(len(labels), -1)
    node.attribute("kernel_params")
    if node.attribute("prob_a") or node.attribute("prob_b"):
        node.unsupported("has probabilities without support vectors")
    rho = scores.floats(node, "rho", (0.0,))[:1]
    total = node.op("Add", node.op("MatMul", scores.matrix(node, 0), coefficients.T), rho)
    chosen = node.op("ArgMax", total, axis=1, keepdims=0)
    if len(labels) == 2:
        largest = node.op("ReduceMax", total, np.array([1]), keepdims=0)
        positive = bool((coefficients >= 0).all())
        comparison, limit = ("GreaterOrEqual", 0.5) if positive else ("Greater", 0)
        above = node.op(comparison, largest, np.float32(limit))
        chosen = node.op("Where", above, np.int64(1), chosen)
    node.emit(scores.map_labels(node, chosen, labels), 0)
    node.emit(scores.transform(node, total, transform), 1)


def _by_pairs(node: Rewrite, labels: Array, transform: str) -> None:
    counts = node.attribute("vectors_per_class")
    vectors = scores.floats(node, "support_vectors").reshape(sum(counts), -1)
    weights, pairs = _pairs(node, counts)
    rho = scores.floats(node, "rho")[: len(pairs)]
    similar = _kernel(node, scores.matrix(node, 0), vectors)
    total = node.op("Add", node.op("MatMul", similar, weights), rho)
    wins = node.op("Cast", node.op("Greater", total, np.float32(0)), to=ir.DataType.FLOAT)
    classes = np.arange(len(labels))
    first, second = (np.array([pair[side] == classes for pair in pairs], np.float32) for side in (0, 1))
    votes = node.op("Add", node.op("MatMul", wins, first - second), second.sum(axis=0))
    node.emit(scores.map_labels(node, node.op("ArgMax", votes, axis=1, keepdims=0), labels), 0)
    given = [scores.floats(node, name)[: len(pairs)] for name in ("prob_a", "prob_b")]
    if given[0].size:
        total = _probabilities(node, total, given, pairs, len(labels))
    elif len(labels) == 2:
        if transform != "NONE":
            node.unsupported(f"the transform {transform} of a single score")
        total = node.op("Concat", node.op("Neg", total), total, axis=1)
    node.emit(scores.transform(node, total, transform), 1)


def _pairs(node: Rewrite, counts: tuple[int, ...]) -> tuple[Array, list[tuple[int, int]]]:
    """Return the pairs of classes, and before them each support vector's weight in each machine, [vectors, pairs]."""
    classes, total = len(counts), sum(counts)
    starts = np.cumsum([0, *counts])
    coefficients = scores.floats(node, "coefficients")[: (classes - 1) * total]
    rows = coefficients.reshape(classes - 1, total)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((total, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            of_class = slice(starts[own], starts[own + 1])
            weights[of_class, column] = rows[other, of_class]
    return weights, pairs


def _kernel(node: Rewrite, x: ir.Value, vectors: Array) -> ir.Value:
    """Return the kernel of each row of x with each of `vectors`, [rows, vectors]."""
    kind = scores.text(node, "kernel_type", "LINEAR")
    gamma, coef0, degree = (np.float32(each) for each in node.attribute("kernel_params", (0.0, 0.0, 3.0)))
    if kind == "RBF":
        # Not from products of x and vectors: that loses the digits of what is near.
        difference = node.op("Sub", node.op("Unsqueeze", x, np.array([1])), vectors[None])
        squares = node.op("ReduceSum", node.op("Mul", difference, difference), np.array([2]), keepdims=0)
        return node.op("Exp", node.op("Mul", squares, -gamma))
    product = node.op("MatMul", x, vectors.T)
    if kind == "LINEAR":
        return product
    scaled = node.op("Add", node.op("Mul", product, gamma), coef0)
    if kind == "POLY":
        return node.op("Pow", scaled, degree)
    return node.op("Tanh", scaled)


# ---- class probabilities from those of class pairs


_MOST_CLASSES = 10
# Most inputs converge in 3 rounds, thousands of random ones in 4.
_ROUNDS = 6
_LEAST = np.float32(1e-7)


def _probabilities(
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
    """The p that minimizes p' Q p, where Q follows from the pairs' probabilities.

    Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling" (2004), second
    method, with the iteration and stop rule of LIBSVM and ONNX Runtime.
    """

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
