"""Read LightGBM's model dump into a Forest.

Written from what LightGBM 4.7 dumps and computes (include/LightGBM/tree.h: NumericalDecision, CategoricalDecision, and
what a linear leaf gives). It compares in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightgbm
import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, InputError
from onnxport.exporters.classical.boosters.booster import Booster, Library, fitted_booster, unknown_objective
from onnxport.exporters.classical.boosters.forest import (
    Answers,
    Branch,
    Forest,
    Leaf,
    Link,
    Member,
    Missing,
    Tree,
)
from onnxport.exporters.classical.tabular import first_line
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

_NAME = f"LightGBM {lightgbm.__version__}, CPU"
# Numbers no larger are taken for 0 (meta.h: kZeroThreshold).
_ZERO = float(np.float32(1e-35))

# Objective to what turns sums into predictions.
_LINKS: Mapping[str, Link] = {
    "binary": "sigmoid",
    "cross_entropy": "sigmoid",
    "cross_entropy_lambda": "softplus",
    "multiclass": "softmax",
    "multiclassova": "sigmoid",
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    **dict.fromkeys(
        "regression regression_l1 huber fair quantile mape lambdarank rank_xendcg custom".split(), "identity"
    ),
}
_OF_CLASSES = ("binary", "multiclass", "multiclassova")


def load(source: Source, params: ExportParams) -> Booster:
    """Load the model in a text file; InputError if it is none."""
    path = source.files[0]
    with path.open("rb") as stream:
        begins = stream.read(5)
    if begins.strip() != b"tree":
        raise InputError(
            f"{source.name} is not a LightGBM model",
            why="its first line is not 'tree'",
            fix="give what Booster.save_model wrote",
        )
    try:
        return of_object(lightgbm.Booster(model_file=path), source, params)
    except (lightgbm.basic.LightGBMError, ValueError, LookupError) as error:  # it dumps JSON and reads that
        raise InputError(f"{source.name} is not a LightGBM model", why=first_line(error)) from error


def of_object(model: Any, source: Source, params: ExportParams) -> Booster:
    """Load a Booster, or an estimator of lightgbm.sklearn.

    Raises:
        InputError: it was not fitted.
        CannotConvertError: an objective that is not known.
    """
    booster = model if isinstance(model, lightgbm.Booster) else fitted_booster(model, source, "booster_")
    dumped = booster.dump_model()
    forest = _forest(dumped)
    rounds = len(dumped["tree_info"]) // forest.targets
    answers = _answers(model, dumped, rounds, source)

    def predict(table: Array) -> dict[str, Any]:
        predicted = model.predict(table, num_threads=1)
        if model is booster or not answers.classes:
            return {answers.scores: predicted}
        return {answers.label: predicted, answers.scores: model.predict_proba(table, num_threads=1)}

    def margins(table: Array, start: int, stop: int) -> Array:
        span = {"start_iteration": start, "num_iteration": stop - start}
        return np.asarray(booster.predict(table, raw_score=True, num_threads=1, **span))

    library = Library(predict, margins, rounds)
    return Booster("lightgbm", _NAME, forest, answers, library, params, own="float64")


def _answers(model: Any, dumped: Mapping[str, Any], rounds: int, source: Source) -> Answers:
    objective, *settings = dumped.get("objective", "custom").split()
    given = dict(setting.partition(":")[::2] for setting in settings)
    if objective not in _LINKS:
        raise unknown_objective(source, objective, _LINKS)
    link: Link = "signed square" if "sqrt" in given else _LINKS[objective]
    scale = float(given.get("sigmoid", 1.0)) / (rounds if dumped["average_output"] else 1)
    if not isinstance(model, lightgbm.LGBMClassifier):
        return Answers(link, "probabilities" if objective in _OF_CLASSES else "prediction", scale=scale)
    if objective not in _OF_CLASSES:
        raise CannotConvertError(
            f"{source.name} is a classifier with the objective {objective!r}",
            why="it does not return probabilities",
        )
    return Answers(link, "probabilities", list(model.classes_), both=objective == "binary", scale=scale)


def _forest(dumped: Mapping[str, Any]) -> Forest:
    targets, width = dumped["num_tree_per_iteration"], dumped["max_feature_idx"] + 1
    forest = Forest(width, targets, [0.0] * targets)
    for index, tree in enumerate(dumped["tree_info"]):
        forest.trees.append(_tree(forest, tree["tree_structure"], index % targets))
    return forest


def _tree(forest: Forest, root: Mapping[str, Any], target: int) -> Tree:
    nodes: list[Any] = [None]
    pending: list[tuple[int, Mapping[str, Any]]] = [(0, root)]
    while pending:
        place, found = pending.pop()
        if "split_feature" not in found:
            _add_leaf(forest, nodes, place, found, target)
            continue
        yes, no = len(nodes), len(nodes) + 1
        nodes += [None, None]
        nodes[place] = _branch(forest, found, yes, no)
        pending += [(yes, found["left_child"]), (no, found["right_child"])]
    return nodes


def _branch(forest: Forest, found: Mapping[str, Any], yes: int, no: int) -> Branch:
    column, threshold, kind = found["split_feature"], found["threshold"], found["missing_type"]
    if found["decision_type"] == "==":
        codes = frozenset(int(code) for code in str(threshold).split("||"))
        member = forest.place(Member(column, codes, cuts_negative=True))
        return Branch(member, "BRANCH_GT", 0.5, yes, no, missing=False)
    missing = found["default_left"]
    if kind == "None":  # NaN is taken for 0
        missing = threshold >= 0
    elif kind == "Zero":
        column = forest.place(Missing(column, 0.0, _ZERO))
    return Branch(column, "BRANCH_LEQ", _beyond_zero(float(threshold)), yes, no, missing)


def _beyond_zero(threshold: float) -> float:
    """Move a threshold so that all numbers treated as 0 are on 0's side."""
    if -_ZERO <= threshold < 0:
        return float(np.nextafter(-_ZERO, -np.inf))
    return max(threshold, _ZERO) if threshold >= 0 else threshold


def _add_leaf(forest: Forest, nodes: list[Any], place: int, found: Mapping[str, Any], target: int) -> None:
    """Add a leaf; a linear one gets a chain of questions that leads to its constant where a column is missing."""
    if not found.get("leaf_features"):
        constant = found.get("leaf_const", found["leaf_value"])
        nodes[place] = Leaf({target: constant})
        return
    forest.linear = True
    for column in found["leaf_features"]:
        known, unknown = len(nodes), len(nodes) + 1
        nodes += [None, Leaf({target: found["leaf_value"]})]
        nodes[place] = Branch(column, "BRANCH_LEQ", np.inf, known, unknown, missing=False)
        place = known
    factors = zip(found["leaf_features"], found["leaf_coeff"], strict=True)
    weights = {target + forest.targets * (1 + column): factor for column, factor in factors}
    nodes[place] = Leaf({target: found["leaf_const"], **weights})
