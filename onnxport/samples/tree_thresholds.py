"""Where the answers of a tree ensemble change: the thresholds that ai.onnx.ml's operators hold, feature by feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.samples.columns import Column

_OPERATORS = frozenset("TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor".split())
_COMPARES = "BRANCH"  # modes of nodes that are no leaves; TreeEnsemble-5 numbers them and lists no leaves
# Thresholds of one feature that are drawn from, at most.
_LEVELS = 256


def is_tree_ensemble(node: ir.Node) -> bool:
    return node.domain == "ai.onnx.ml" and node.op_type in _OPERATORS


def columns_of(node: ir.Node, width: int) -> tuple[Column, ...]:
    """The features of a tree ensemble of `width` features.

    NaN is a value where a node says which way it goes (nodes_missing_value_tracks_true).
    """
    features = np.asarray(node.attributes["nodes_featureids"].as_ints())
    thresholds = _thresholds(node)
    compares = _compares(node, len(features))
    tracks = node.attributes.get("nodes_missing_value_tracks_true")
    missing = np.zeros(len(features), bool) if tracks is None else np.asarray(tracks.as_ints(), bool)
    return tuple(
        Column(
            levels=_some(np.unique(thresholds[compares & (features == feature)])),
            missing=bool(missing[compares & (features == feature)].any()),
        )
        for feature in range(width)
    )


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


def _some(levels: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, ...]:
    """At most _LEVELS of them, evenly."""
    chosen = np.unique(np.linspace(0, len(levels) - 1, min(_LEVELS, len(levels))).astype(int))
    return tuple(float(each) for each in levels[chosen] if np.isfinite(each))
