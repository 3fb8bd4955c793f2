"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.ml import scores
from onnxport.optimizers.rewrites.ml.pairwise_probabilities import probabilities
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
        total = probabilities(node, total, given, pairs, len(labels))
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
