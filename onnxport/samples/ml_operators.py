"""The domains of features in ai.onnx.ml's operators: texts that encoders know, thresholds of trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.samples.columns import Column
from onnxport.samples.value_uses import constant, operand

_TREES = frozenset("TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor".split())
_COMPARES = "BRANCH"  # modes of nodes that are no leaves; TreeEnsemble-5 numbers them and lists no leaves
_MOST_LEVELS = 256  # thresholds of one feature

# Operator -> the attribute that lists its texts.
_TEXTS = {"OneHotEncoder": "cats_strings", "LabelEncoder": "keys_strings", "CategoryMapper": "cats_strings"}
_UNSEEN = "unseen"  # a text that no encoder lists


def known_texts(node: ir.Node) -> tuple[str, ...]:
    """Return the texts that an encoder lists, and one more where it accepts any; () for other nodes."""
    name = _TEXTS.get(node.op_type, "") if node.domain == "ai.onnx.ml" else ""
    if name not in node.attributes:
        return ()
    known = tuple(str(text) for text in node.attributes[name].as_strings())
    zeros = node.attributes.get("zeros")
    accepts_any = node.op_type != "OneHotEncoder" or zeros is None or zeros.as_int() == 1
    return (*known, _UNSEEN) if known and accepts_any else known


def is_tree_ensemble(node: ir.Node) -> bool:
    return node.domain == "ai.onnx.ml" and node.op_type in _TREES


def tree_columns(node: ir.Node, width: int) -> tuple[Column, ...]:
    """Return the columns of a tree ensemble of `width` features, with the thresholds where its output changes.

    NaN is a value where a node has a branch for it (nodes_missing_value_tracks_true).
    """
    features = np.asarray(node.attributes["nodes_featureids"].as_ints())
    thresholds = _thresholds(node)
    compares = _compares(node, len(features))
    tracks = node.attributes.get("nodes_missing_value_tracks_true")
    missing = np.zeros(len(features), bool) if tracks is None else np.asarray(tracks.as_ints(), bool)
    return tuple(
        Column(
            levels=_thin_out(np.unique(thresholds[compares & (features == feature)])),
            missing=bool(missing[compares & (features == feature)].any()),
        )
        for feature in range(width)
    )


def merge_columns(columns: Sequence[Column]) -> Column:
    """Return one column with the thresholds of several ensembles that compare it."""
    if len(columns) == 1:
        return columns[0]
    levels = np.unique([level for column in columns for level in column.levels])
    return Column(levels=_thin_out(levels), missing=any(column.missing for column in columns))


def _thresholds(node: ir.Node) -> np.ndarray[Any, np.dtype[np.float64]]:
    for name in ("nodes_splits", "nodes_values_as_tensor"):
        if name in node.attributes:
            return node.attributes[name].as_tensor().numpy().astype(np.float64)
    return np.asarray(node.attributes["nodes_values"].as_floats(), np.float64)


def _compares(node: ir.Node, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    modes = node.attributes["nodes_modes"]
    if modes.type != ir.AttributeType.STRINGS:
        return np.ones(count, bool)
    return np.array([str(mode).startswith(_COMPARES) for mode in modes.as_strings()], bool)


def fitted_rows(node: ir.Node, index: int, width: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and deviation of the rows that a model holds for `width` features; () and () for other nodes.

    Support vectors, or the means of classes that rows of a table are subtracted from: far from them all a model of
    distances gives one answer.
    """
    rows = _support_vectors(node) if node.domain == "ai.onnx.ml" else None
    if rows is None and node.op_type == "Sub":
        means = operand(node, index)
        if means is not None and means.ndim > 1 and means.shape[-1] == width and means.dtype.kind == "f":
            rows = means.reshape(-1, width)
    if rows is None or len(rows) < 2 or rows.shape[-1] != width or not np.isfinite(rows).all():
        return (), ()
    return tuple(map(float, rows.mean(0))), tuple(map(float, rows.std(0)))


def _support_vectors(node: ir.Node) -> Array | None:
    """Return the support vectors of a machine, [vectors, features]."""
    if "support_vectors" not in node.attributes:
        return None
    vectors = np.asarray(node.attributes["support_vectors"].as_floats(), np.float64)
    counts = node.attributes.get("n_supports"), node.attributes.get("vectors_per_class")
    count = counts[0].as_int() if counts[0] is not None else 0
    count = count or (sum(counts[1].as_ints()) if counts[1] is not None else 0)
    return vectors.reshape(count, -1) if count and vectors.size and vectors.size % count == 0 else None


_COMPARISONS = frozenset("Less LessOrEqual Greater GreaterOrEqual".split())


def compared_levels(readers: Iterable[tuple[ir.Node, int]]) -> tuple[float, ...]:
    """Return the thresholds of trees that an exporter wrote as Gather and comparisons; () for other models.

    The features of inner nodes are chosen at run time, so each threshold counts for every feature.
    """
    first = next((node for node, index in readers if _compared(node, index).size > 1), None)
    if first is None or first.graph is None:
        return ()
    found = [_compared(node, index) for node in first.graph for index in range(2)]
    levels = np.concatenate([each.astype(np.float64).ravel() for each in found])
    return _thin_out(np.unique(levels[np.isfinite(levels)]))


def _compared(node: ir.Node, index: int) -> Array:
    """Return the floats that a node compares an operand with, looked up or constant; none for other nodes."""
    if node.op_type in _COMPARISONS and node.domain == "":
        other = node.inputs[1 - index]
        source = None if other is None else other.producer()
        looked_up = source is not None and source.op_type == "Gather"
        numbers = constant(source.inputs[0] if looked_up and source is not None else other)
        if numbers is not None and numbers.dtype.kind == "f":
            return numbers
    return np.zeros(0)


def _thin_out(levels: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, ...]:
    """Return at most _MOST_LEVELS of them, evenly spaced."""
    chosen = np.unique(np.linspace(0, len(levels) - 1, min(_MOST_LEVELS, len(levels))).astype(int))
    return tuple(float(each) for each in levels[chosen] if np.isfinite(each))
