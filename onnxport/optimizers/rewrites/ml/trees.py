"""Tree ensembles as gather arithmetic: all trees of all rows descend one level at a time.

A tree's state is the row of its current node in tables over all nodes. A level gathers the node's feature,
threshold and children and compares; a leaf leads to itself, so that every tree takes as many steps as the deepest.
States are [rows, trees], and of a single row [trees]: runtimes look up by one axis of indices fastest.
Where ONNX is vague (labels, transforms, base values), ONNX Runtime's answer decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.ml import scores
from onnxport.optimizers.rewrites.ml.forest import LEAF, Forest, by_ids, by_rows
from onnxport.optimizers.rewrites.registry import Rewrite, rewrites

_MAX_DEPTH = 1000
_FLOAT32 = np.dtype(np.float32)
_TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
_ROUNDED = (
    "trees compare float64 features as float32: exact for features that are float32 numbers, since thresholds are "
    "rounded to the safe side; another feature may fall on the other side of a threshold that is nearer than 1e-7 of it"
)
_AGGREGATIONS = ("AVERAGE", "SUM", "MIN", "MAX")  # by number, as TreeEnsemble-5 has them
_COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
    "BRANCH_NEQ": "Equal",  # and Not
}


@rewrites("ai.onnx.ml::TreeEnsembleRegressor")
def tree_ensemble_regressor(node: Rewrite) -> None:
    """Compute one number per target (ONNX TreeEnsembleRegressor-3)."""
    aggregation = scores.text(node, "aggregate_function", "SUM")
    transform = scores.post_transform(node)
    targets = node.attribute("n_targets", 1)
    _regression(
        node, by_ids(node, "target"), targets, aggregation, transform, scores.floats(node, "base_values")
    )


@rewrites("ai.onnx.ml::TreeEnsemble")
def tree_ensemble(node: Rewrite) -> None:
    """Compute one number per target (ONNX TreeEnsemble-5)."""
    aggregation = _AGGREGATIONS[node.attribute("aggregate_function", 1)]
    transform = scores.TRANSFORMS[node.attribute("post_transform", 0)]
    targets = node.attribute("n_targets", 1)
    _regression(
        node,
        by_rows(node),
        targets,
        aggregation,
        transform,
        np.zeros(0, np.float32),
        node.dtype(node.input(0)),
    )


@rewrites("ai.onnx.ml::TreeEnsembleClassifier")
def tree_ensemble_classifier(node: Rewrite) -> None:
    """Compute the label and a score per class (ONNX TreeEnsembleClassifier-3)."""
    labels = scores.labels(node)
    forest, base = by_ids(node, "class"), scores.floats(node, "base_values")
    if len(labels) < 2:
        node.unsupported("has a single class")
    transform = scores.post_transform(node)
    leaves, order = _leaves(node, forest)
    table = Weights(forest, order, len(labels), fill=0)
    total = node.op("ReduceSum", node.op("Gather", table.weights, leaves), np.array([1]), keepdims=0)
    if len(labels) == 2:
        label, result = _binary(node, forest, table, total, labels, base, transform)
    else:
        if base.size:
            total = node.op("Add", total, np.pad(base, (0, len(labels) - base.size)))
        label = _largest(node, table, leaves, total, labels, base)
        result = scores.transform(node, total, transform)
    node.emit(label, 0)
    node.emit(result, 1)


def _regression(
    node: Rewrite,
    forest: Forest,
    targets: int,
    aggregation: str,
    transform: str,
    base: Array,
    dtype: np.dtype[Any] = _FLOAT32,
) -> None:
    leaves, order = _leaves(node, forest)
    fill = {"MIN": np.inf, "MAX": -np.inf}.get(aggregation, 0)
    table = Weights(forest, order, targets, fill)
    reduce = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(aggregation, "ReduceSum")
    total = node.op(reduce, node.op("Gather", table.weights, leaves), np.array([1]), keepdims=0)
    if aggregation == "AVERAGE":
        total = node.op("Div", total, np.float32(len(forest.roots)))
    if base.size == targets:
        total = node.op("Add", total, base)
    if not all(table.always) and targets > 1:
        # A target without a weight does not get the base value either.
        total = node.op("Where", _has_score(node, table, leaves), total, np.float32(0))
    if targets > 1 or transform == "PROBIT":  # others change nothing of a single target
        total = scores.transform(node, total, transform)
    node.emit(total if dtype == _FLOAT32 else node.op("Cast", total, to=ir.DataType.from_numpy(dtype)))


# ---- down the trees


def _leaves(node: Rewrite, forest: Forest) -> tuple[ir.Value, list[int]]:
    """Return the leaf of each row of x in each tree, as an index into the second result."""
    node.is_exact = True  # in fewer bits, features and thresholds fall on one another
    x = node.input(0)
    *_, features = node.shape(x)
    if features is not None and max(forest.features) >= features:
        node.unsupported(f"reads feature {max(forest.features)} of {features}")
    depth = forest.depth
    if depth > _MAX_DEPTH:
        node.unsupported(f"a tree of depth {depth}; at most {_MAX_DEPTH} levels are unrolled")
    # Leaves last, so that their number is what is left of a row.
    order = np.argsort([mode == LEAF for mode in forest.modes], kind="stable")
    place = np.argsort(order)
    inner = len(order) - forest.modes.count(LEAF)
    state: Any = place[forest.roots].astype(np.int32)
    descent = _Descent(node, forest, order, place, x, features)
    if descent.starts is not None:
        state = state[None]
    for _ in range(depth):
        state = descent.descend(state)
    if descent.starts is None:
        state = node.op("Reshape", state, np.array([1, -1]))
    elif depth == 0:
        state = node.op("Add", node.op("Mul", descent.starts, np.int32(0)), state)
    leaves = node.op("Sub", state, np.int32(inner)) if inner else state
    return leaves, [int(row) for row in order[inner:]]


def _round_thresholds(forest: Forest) -> Array:
    """Return float32 thresholds that decide as the float64 ones do for every x that is a float32.

    x <= t holds where x <= the largest float32 up to t, and x < t where x < the smallest from t on.
    """
    exact = np.asarray(forest.thresholds, np.float64)
    modes = np.asarray(forest.modes)
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float32)
    lower = np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    upper = np.where(nearest < exact, np.nextafter(nearest, np.float32(np.inf)), nearest)
    rounded = np.where(np.isin(modes, ("BRANCH_LEQ", "BRANCH_GT")), lower, nearest)
    rounded = np.where(np.isin(modes, ("BRANCH_LT", "BRANCH_GTE")), upper, rounded)
    never = np.isin(modes, ("BRANCH_EQ", "BRANCH_NEQ")) & (nearest != exact)
    return np.where(never, np.float32(np.nan), rounded).astype(np.float32)


def describe_rounding(graph: ir.Graph) -> tuple[str, ...]:
    """Return a note if trees read float64 features."""
    trees = (node for node in graph.all_nodes() if node.op_type in _TREES and node.domain == "ai.onnx.ml")
    features = (node.inputs[0] for node in trees if node.inputs)
    return (_ROUNDED,) if any(x is not None and x.dtype == ir.DataType.DOUBLE for x in features) else ()


class _Descent:
    """The tables of a forest in node order, and the descent through them."""

    def __init__(
        self, node: Rewrite, forest: Forest, order: Array, place: Array, x: ir.Value, features: int | None
    ) -> None:
        self.node = node
        self.features = node.array(np.asarray(forest.features, np.int32)[order])
        self.thresholds = node.array(_round_thresholds(forest)[order])
        pairs = np.stack([np.asarray(forest.false)[order], np.asarray(forest.true)[order]], axis=1)
        self.children = node.array(place[pairs].reshape(-1).astype(np.int32))
        used = sorted({mode for mode in forest.modes if mode != LEAF})
        modes = np.asarray(forest.modes)[order]
        # The most frequent comparison is the default and needs no mask.
        used.sort(key=lambda mode: -int((modes == mode).sum()))
        self.comparisons = [
            (mode, None if index == 0 else node.array(modes == mode)) for index, mode in enumerate(used)
        ]
        tracks = np.asarray(forest.tracks_missing, bool)[order] & (modes != LEAF)
        self.tracks = node.array(tracks) if tracks.any() else None
        is_single = len(node.shape(x)) == 1 or node.shape(x)[0] == 1
        self.starts = None if is_single else self._starts(x, features)
        # Not Cast behind Reshape: Google's compiler swaps Gather and a Cast before it, and has no Gather of float64.
        self.x = node.op("Reshape", node.cast(x, np.float32), np.array([-1]))

    def _starts(self, x: ir.Value, features: int | None) -> ir.Value:
        """Return the places of the rows of x in x as one row, [rows, 1]."""
        node = self.node
        count = node.op("Squeeze", node.op("Cast", node.op("Shape", x, end=1), to=ir.DataType.INT32))
        numbers = node.op("Range", np.int32(0), count, np.int32(1))
        width: ir.Value | np.generic
        if features is None:
            width = node.op("Cast", node.op("Shape", x, start=-1), to=ir.DataType.INT32)
        else:
            width = np.int32(features)
        return node.op("Unsqueeze", node.op("Mul", numbers, width), np.array([1]))

    def descend(self, state: ir.Value | Array) -> ir.Value:
        node = self.node
        feature = node.op("Gather", self.features, state)
        if self.starts is not None:
            feature = node.op("Add", feature, self.starts)
        value = node.op("Gather", self.x, feature)
        threshold = node.op("Gather", self.thresholds, state)
        side = None
        for mode, holds in self.comparisons:
            if mode not in _COMPARISONS:
                node.unsupported(f"a node of the unknown mode {mode!r}")
            true = node.op(_COMPARISONS[mode], value, threshold)
            true = node.op("Not", true) if mode == "BRANCH_NEQ" else true
            goes = node.op("Cast", true, to=ir.DataType.INT32)
            side = goes if side is None else node.op("Where", node.op("Gather", holds, state), goes, side)
        if self.tracks is not None:
            missing = node.op("And", node.op("IsNaN", value), node.op("Gather", self.tracks, state))
            side = node.op("Where", missing, np.int32(1), side)
        pair = node.op("Mul", state, np.int32(2))
        return node.op("Gather", self.children, node.op("Add", pair, side))


class Weights:
    """The addend of each leaf to each target, [leaves, targets], and the targets that it has one for.

    Attributes:
        always: by target: some tree has a weight for it in every leaf.
        ever: by target: some leaf has a weight for it.
    """

    def __init__(self, forest: Forest, order: list[int], targets: int, fill: float) -> None:
        place = {row: number for number, row in enumerate(order)}
        self.weights = np.full((len(order), targets), fill, np.float32)
        self.present = np.zeros((len(order), targets), bool)
        for row, target, weight in forest.weights:
            number = place.get(row)
            if number is None:
                continue  # a weight of a node that is no leaf is never reached
            if self.present[number, target]:
                self.weights[number, target] += np.float32(weight)
            else:
                self.weights[number, target] = weight
                self.present[number, target] = True
        tree = _tree_numbers(forest)[order]
        own = [self.present[tree == each] for each in range(len(forest.roots))]
        self.always = [any(bool(of[:, k].all()) for of in own) for k in range(targets)]
        self.ever = [bool(self.present[:, k].any()) for k in range(targets)]


def _has_score(node: Rewrite, table: Weights, leaves: ir.Value) -> ir.Value | Array:
    """Return which targets a row's leaves have a weight for; a constant if it is the same for all rows."""
    if table.ever == table.always:
        return np.array(table.ever)
    present = node.op("Gather", table.present.astype(np.float32), leaves)
    found = node.op("ReduceMax", present, np.array([1]), keepdims=0)
    return node.op("Greater", found, np.float32(0))


def _tree_numbers(forest: Forest) -> Array:
    trees = np.full(len(forest.modes), -1)
    for number, root in enumerate(forest.roots):
        waiting = [root]
        while waiting:
            row = waiting.pop()
            trees[row] = number
            if forest.modes[row] != LEAF:
                waiting += [forest.true[row], forest.false[row]]
    return trees


# ---- from scores to labels


def _largest(
    node: Rewrite, table: Weights, leaves: ir.Value, total: ir.Value, labels: Array, base: Array
) -> ir.Value:
    """Return the label of the largest score, the first of equals, among classes with a score."""
    classes = len(labels)
    scored = np.array(table.always) | (np.arange(classes) < base.size)
    if not scored.all():
        has = _has_score(node, table, leaves)
        has = node.op("Or", has, scored) if isinstance(has, ir.Value) else has | scored
        total = node.op("Where", has, total, np.float32(np.finfo(np.float32).min))
    return scores.map_labels(node, node.op("ArgMax", total, axis=1, keepdims=0), labels)


def _binary(
    node: Rewrite,
    forest: Forest,
    table: Weights,
    total: ir.Value,
    labels: Array,
    base: Array,
    transform: str,
) -> tuple[ir.Value, ir.Value]:
    """Score two classes; often only one has weights, and its score is the second class's."""
    if table.ever[1] and not table.always[1]:
        node.unsupported("has scores of the second of two classes in some leaves only")
    single = len({target for _, target, _ in forest.weights}) == 1
    positive = all(weight >= 0 for _, _, weight in forest.weights)
    first, second = (node.op("Slice", total, np.array([k]), np.array([k + 1]), np.array([1])) for k in (0, 1))
    if table.ever[1]:
        return _two_scores(node, first, second, labels, base, transform, (single, positive))
    if base.size == 2:
        node.unsupported("has base values for two classes, but weights for one")
    if base.size == 1:
        first = node.op("Add", first, base)
    if transform == "PROBIT":
        node.unsupported("PROBIT of a single score, for which ONNX Runtime leaves the second one undefined")
    is_second = node.op("Greater", first, np.float32(0.5 if positive and single else 0))
    flat = node.op("Squeeze", is_second, np.array([1]))
    label = scores.map_labels(node, node.op("Cast", flat, to=ir.DataType.INT64), labels)
    if transform == "LOGISTIC":
        pair = [node.op("Sigmoid", node.op("Neg", first)), node.op("Sigmoid", first)]
    else:
        pair = [node.op("Sub", np.float32(1), first) if positive else node.op("Neg", first), first]
    return label, node.op("Concat", *pair, axis=1)


def _two_scores(
    node: Rewrite,
    first: ir.Value,
    second: ir.Value,
    labels: Array,
    base: Array,
    transform: str,
    weights: tuple[bool, bool],
) -> tuple[ir.Value, ir.Value]:
    single, positive = weights
    if base.size == 2:
        second = node.op("Add", first, base[1:])
        first = node.op("Neg", second)
    elif base.size == 1:
        first = node.op("Add", first, base)
    limit = np.float32(0.5 if single and positive else 0)
    is_second = node.op("Squeeze", node.op("Greater", second, limit), np.array([1]))
    own = labels if single or labels.dtype.kind == "U" else np.array([0, 1])
    label = scores.map_labels(node, node.op("Cast", is_second, to=ir.DataType.INT64), own)
    pair = node.op("Concat", first, second, axis=1)
    return label, scores.transform(node, pair, transform)
