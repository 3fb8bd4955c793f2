"""The domains of features in ai.onnx.ml's operators: texts that encoders know, thresholds of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.samples.columns import Column

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


def _thin_out(levels: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, ...]:
    """Return at most _MOST_LEVELS of them, evenly spaced."""
    chosen = np.unique(np.linspace(0, len(levels) - 1, min(_MOST_LEVELS, len(levels))).astype(int))
    return tuple(float(each) for each in levels[chosen] if np.isfinite(each))
