"""Linear models of ai.onnx.ml: a matrix product, and labels and transforms of its scores."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.ml import scores
from onnxport.optimizers.rewrites.registry import Rewrite, rewrites


@rewrites("ai.onnx.ml::LinearRegressor")
def linear_regressor(node: Rewrite) -> None:
    """Compute x * coefficients + intercepts (ONNX LinearRegressor-1)."""
    targets = node.attribute("targets", 1)
    total = _product(node, targets)
    transform = scores.post_transform(node)
    if targets > 1 or transform == "PROBIT":
        total = scores.transform(node, total, transform)
    node.emit(total)


@rewrites("ai.onnx.ml::LinearClassifier")
def linear_classifier(node: Rewrite) -> None:
    """Compute the label and a score per class (ONNX LinearClassifier-1); a single score is the second class's."""
    node.ignore("multi_class")  # how it was trained
    labels, transform = scores.labels(node), scores.post_transform(node)
    intercepts = node.attribute("intercepts", ())
    classes = len(intercepts) or len(labels)
    total = _product(node, classes)
    if classes > 1:
        if len(labels) != classes:
            node.unsupported(f"has scores for {classes} classes and {len(labels)} labels")
        node.emit(scores.map_labels(node, node.op("ArgMax", total, axis=1, keepdims=0), labels), 0)
        node.emit(scores.transform(node, total, transform), 1)
        return
    if len(labels) != 2 or transform not in ("NONE", "LOGISTIC"):
        node.unsupported(f"has one score for {len(labels)} classes and the transform {transform}")
    is_second = node.op("Squeeze", node.op("Greater", total, np.float32(0)), np.array([1]))
    node.emit(scores.map_labels(node, node.op("Cast", is_second, to=ir.DataType.INT64), labels), 0)
    if transform == "LOGISTIC":
        total = node.op("Sigmoid", total)
    node.emit(node.op("Concat", node.op("Sub", np.float32(1), total), total, axis=1), 1)


def _product(node: Rewrite, rows: int) -> ir.Value:
    x, coefficients = scores.matrix(node, 0), scores.floats(node, "coefficients")
    *_, features = node.shape(node.input(0)) or (None,)
    if features is not None and coefficients.size > rows * features:
        # ONNX Runtime reads as many as it needs; its own sample logreg_iris.onnx has twice as many.
        coefficients = coefficients[: rows * features]
    if not rows or coefficients.size % rows:
        node.unsupported(f"has {coefficients.size} coefficients, which do not fill {rows} rows")
    weights: Array = coefficients.reshape(rows, -1)
    intercepts = scores.floats(node, "intercepts")
    if intercepts.size != rows:
        intercepts = np.zeros(rows, np.float32)
    return node.op("Gemm", x, weights, intercepts, transB=1)
