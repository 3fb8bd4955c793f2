"""Classifiers of ai.onnx.ml as plain operators: a matrix product, its softmax and the label of the largest score.

    Given   LinearClassifier(x)      Result  labels[ArgMax(x W + b)], Softmax(x W + b)
    Given   Normalizer(x), norm L1   Result  x / (sum |x|, or 1 where that is 0)

By ONNX ai.onnx.ml LinearClassifier-1 and Normalizer-1, as ONNX Runtime computes them. What is not written here stays as
it is, and is compared as a whole.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.validate.translation.place import Place

_TRANSFORMS = {"SOFTMAX": ("Softmax", {"axis": 1}), "LOGISTIC": ("Sigmoid", {}), "NONE": ("Identity", {})}


def rewrite_linear_classifier(place: Place) -> None:
    """A score for each class; one score for two classes stays as it is."""
    attributes = place.node.attributes
    intercepts = np.asarray(attributes.get_floats("intercepts", ()), np.float32)
    coefficients = np.asarray(attributes.get_floats("coefficients", ()), np.float32)
    labels: Array = np.asarray(attributes.get_ints("classlabels_ints", ()), np.int64)
    transform = _TRANSFORMS.get(attributes.get_string("post_transform", "NONE"))
    data = place.input(0)
    if data is None or data.shape is None or len(data.shape) != 2 or data.dtype != ir.DataType.FLOAT:
        return
    classes = len(labels)
    if classes < 2 or intercepts.size != classes or coefficients.size != classes * data.shape[1]:
        return
    if transform is None:
        return
    weight = place.store(np.ascontiguousarray(coefficients.reshape(classes, -1).T))
    product = place.add("MatMul", [data, weight])
    scores = place.add("Add", [product, place.store(intercepts)])
    op, settings = transform
    index = place.add("ArgMax", [scores], axis=1, keepdims=0)
    index.type = ir.TensorType(ir.DataType.INT64)
    is_plain = np.array_equal(
        labels, np.arange(classes)
    )  # then the index is the label, and converters say so
    label = index if is_plain else place.add("Gather", [place.store(labels), index], axis=0)
    label.type = index.type
    found = place.add(op, [scores], **settings)
    for value in (product, scores, found):
        value.type = ir.TensorType(ir.DataType.FLOAT)
    place.finish_result(0, label)
    place.finish_result(1, found)


def rewrite_normalizer(place: Place) -> None:
    """Rows whose elements' sizes add up to 1."""
    data = place.input(0)
    if data is None or data.shape is None or data.dtype != ir.DataType.FLOAT:
        return
    if place.node.attributes.get_string("norm", "MAX") != "L1":
        return
    total = place.total(place.add("Abs", [data]), len(data.shape) - 1)
    is_zero = place.add("Equal", [total, place.number(0.0)])
    is_zero.type = ir.TensorType(ir.DataType.BOOL)
    divisor = place.add("Where", [is_zero, place.number(1.0), total])
    place.finish(place.add("Mul", [data, place.add("Reciprocal", [divisor])]))


def rewrite_log_sum_exp(place: Place) -> None:
    """ReduceLogSumExp in steps that do not overflow, as converters write it."""
    data, node = place.input(0), place.node
    if data is None or data.dtype != ir.DataType.FLOAT:
        return
    axes = [*node.inputs[1:2]]
    settings = {"axes": list(given)} if (given := node.attributes.get_ints("axes", None)) is not None else {}
    if not axes and not settings:
        return
    largest = place.add("ReduceMax", [data, *axes], keepdims=1, **settings)
    powers = place.add("Exp", [place.add("Sub", [data, largest])])
    total = place.add("ReduceSum", [powers, *(axes or [place.integers(settings["axes"])])], keepdims=1)
    found = place.add("Add", [place.add("Log", [total]), largest])
    if not node.attributes.get_int("keepdims", 1):
        found = place.add("Squeeze", [found, *(axes or [place.integers(settings["axes"])])])
    place.finish(found)
