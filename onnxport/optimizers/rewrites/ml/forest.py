"""Decision trees as tables with a row per node, from any of ONNX's operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.optimizers.rewrites.ml.scores import floats
from onnxport.optimizers.rewrites.registry import CannotRewrite, Rewrite

LEAF = "LEAF"
# The modes by number, as TreeEnsemble-5 has them.
_MODES = "BRANCH_LEQ BRANCH_LT BRANCH_GTE BRANCH_GT BRANCH_EQ BRANCH_NEQ BRANCH_MEMBER".split()


@dataclass
class Forest:
    """The nodes of all trees.

    Attributes:
        roots: the row of each tree's first node.
        modes: a node's comparison, or LEAF.
        features, thresholds: x[feature] is compared with the threshold.
        true, false: the rows that a node leads to; a leaf leads to itself.
        tracks_missing: NaN takes the true branch.
        weights: (row of a leaf, target, weight), each to be added to the target.
    """

    roots: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    true: list[int] = field(default_factory=list)
    false: list[int] = field(default_factory=list)
    tracks_missing: list[bool] = field(default_factory=list)
    weights: list[tuple[int, int, float]] = field(default_factory=list)

    def add(self, mode: str, feature: int = 0, threshold: float = 0.0, missing: bool = False) -> int:
        """Add a node that leads to itself; return its row."""
        row = len(self.modes)
        self.modes.append(mode)
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.tracks_missing.append(missing)
        self.true.append(row)
        self.false.append(row)
        return row

    @property
    def depth(self) -> int:
        """Return the number of comparisons to the deepest leaf."""
        level, depth = set(self.roots), 0
        while True:
            level = {
                child
                for row in level
                if self.modes[row] != LEAF
                for child in (self.true[row], self.false[row])
            }
            if not level:
                return depth
            depth += 1
            if depth > len(self.modes):
                raise CannotRewrite("its trees have a cycle")


def by_ids(node: Rewrite, target: str) -> Forest:
    """Read the forest of a TreeEnsembleClassifier or TreeEnsembleRegressor, whose attributes name it `target`."""
    # How often a node was reached in training.
    node.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees, ids = (_ints(node, f"nodes_{name}") for name in ("treeids", "nodeids"))
    places = {key: row for row, key in enumerate(zip(trees, ids, strict=True))}
    if not places or len(places) < len(ids):
        raise CannotRewrite("its trees have no nodes, or two of one number")
    modes = [mode.decode() if isinstance(mode, bytes) else mode for mode in node.attribute("nodes_modes", ())]
    tracks = _ints(node, "nodes_missing_value_tracks_true") or [0] * len(ids)
    forest = Forest(
        roots=[row for row, tree in enumerate(trees) if row == 0 or tree != trees[row - 1]],
        modes=modes,
        features=_ints(node, "nodes_featureids"),
        thresholds=floats(node, "nodes_values", dtype=np.float64).tolist(),
        tracks_missing=[bool(each) for each in tracks],
    )
    for side in ("true", "false"):
        children = _ints(node, f"nodes_{side}nodeids")
        rows = [
            row if mode == LEAF else places.get((tree, child), -1)
            for row, (tree, child, mode) in enumerate(zip(trees, children, modes, strict=True))
        ]
        if -1 in rows:
            raise CannotRewrite("a node leads to one that does not exist")
        setattr(forest, side, rows)
    leaves = zip(_ints(node, f"{target}_treeids"), _ints(node, f"{target}_nodeids"), strict=True)
    rows, weights = [places[leaf] for leaf in leaves], floats(node, f"{target}_weights").tolist()
    forest.weights = list(zip(rows, _ints(node, f"{target}_ids"), weights, strict=True))
    return forest


def by_rows(node: Rewrite) -> Forest:
    """Read the forest of a TreeEnsemble-5, whose leaves have their own table and whose nodes may test a set."""
    node.ignore("nodes_hitrates")  # how often a node was reached in training
    modes = [_MODES[number] for number in node.attribute("nodes_modes").tolist()]
    thresholds = node.attribute("nodes_splits").tolist()
    features, tracks = _ints(node, "nodes_featureids"), _ints(node, "nodes_missing_value_tracks_true")
    sets = _sets(node.attribute("membership_values"))
    forest = Forest()
    first: list[int] = []  # a node's row, or the first of its chain of comparisons
    chains: list[list[int]] = []
    for i, (mode, feature, threshold) in enumerate(zip(modes, features, thresholds, strict=True)):
        is_set = mode == "BRANCH_MEMBER"
        numbers = next(sets) if is_set else [threshold]
        missing = bool(tracks[i]) if tracks else False
        chain = [forest.add("BRANCH_EQ" if is_set else mode, feature, each, missing) for each in numbers]
        first.append(chain[0])
        chains.append(chain)
    weights = node.attribute("leaf_weights").tolist()
    leaves = [forest.add(LEAF) for _ in weights]
    forest.weights = list(zip(leaves, _ints(node, "leaf_targetids"), weights, strict=True))
    for side in ("true", "false"):
        children, are_leaves = _ints(node, f"nodes_{side}nodeids"), _ints(node, f"nodes_{side}leafs")
        rows = getattr(forest, side)
        for chain, child, is_leaf in zip(chains, children, are_leaves, strict=True):
            goal = leaves[child] if is_leaf else first[child]
            for place, row in enumerate(chain):
                rows[row] = goal if side == "true" or place == len(chain) - 1 else chain[place + 1]
    forest.roots = [first[root] for root in _ints(node, "tree_roots")]
    return forest


def _sets(values: Array | None) -> Any:
    """Yield the members of each node's set; NaN ends one."""
    members: list[float] = []
    for value in () if values is None else values.tolist():
        if np.isnan(value):
            yield members
            members = []
        else:
            members.append(value)
    if members:
        yield members


def _ints(node: Rewrite, name: str) -> list[int]:
    return list(node.attribute(name, ()))
