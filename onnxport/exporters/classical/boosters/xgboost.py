"""Read XGBoost's model, as JSON, into a Forest.

Written from what XGBoost 3.2 saves (doc/tutorials/saving_model.rst of its repository, doc/model.schema) and computes
(include/xgboost/tree_model.h and src/common/categorical.h: which child a row goes to). It compares in float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xgboost

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

_NAME = f"XGBoost {xgboost.__version__}, CPU"
_LEAF = -1
_CATEGORICAL = 1  # of split_type

# Objective to what turns sums into predictions, and the same backwards for base_score; "rank:" and "reg:" that are not
# here predict the sum.
_LINKS: Mapping[str, Link] = {
    "binary:logistic": "sigmoid",
    "reg:logistic": "sigmoid",
    "binary:hinge": "step",
    "multi:softprob": "softmax",
    "multi:softmax": "class",
    **dict.fromkeys("count:poisson reg:gamma reg:tweedie survival:cox survival:aft".split(), "exp"),
}
_SUMS = (
    "reg:squarederror reg:linear reg:squaredlogerror reg:pseudohubererror reg:absoluteerror reg:quantileerror "
    "reg:expectileerror binary:logitraw rank:pairwise rank:ndcg rank:map"
).split()
_MARGINS: Mapping[Link, Callable[[Array], Array]] = {
    "sigmoid": lambda score: np.asarray(np.log(score / (1 - score))),
    "exp": lambda score: np.asarray(np.log(score)),
}


def load(source: Source, params: ExportParams) -> Booster:
    """Load the model in a `.json` or `.ubj` file; InputError if it is none."""
    path = source.files[0]
    if path.suffix.lower() == ".json":
        _check_json(source)
    booster = xgboost.Booster()
    try:
        booster.load_model(path)
        return of_object(booster, source, params)
    except (xgboost.core.XGBoostError, UnicodeDecodeError) as error:  # it quotes the file in its message
        raise InputError(f"{source.name} is not an XGBoost model", why=first_line(error)) from error
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # XGBoost reads columns that are not there
        raise InputError(
            f"{source.name} is damaged",
            why=f"its trees do not fit its numbers, {first_line(error)}",
            fix="save the model again",
        ) from error


def _check_json(source: Source) -> None:
    with source.files[0].open(encoding="utf-8", errors="replace") as stream:
        begin = stream.read(65536)
    if not begin.lstrip().startswith("{") or '"learner"' not in begin:
        raise InputError(
            f"{source.name} is not an XGBoost model",
            why="it is not JSON with a 'learner' at its top",
            fix="give what Booster.save_model wrote",
        )


def of_object(model: Any, source: Source, params: ExportParams) -> Booster:
    """Load a Booster, or an estimator of xgboost.sklearn.

    Raises:
        InputError: it was not fitted.
        CannotConvertError: it has no trees, or an objective that is not known.
    """
    booster = model if isinstance(model, xgboost.Booster) else fitted_booster(model, source, "get_booster")
    saved = json.loads(booster.save_raw("json"))["learner"]
    if saved["gradient_booster"]["name"] not in ("gbtree", "dart"):
        raise CannotConvertError(
            f"{source.name} has no trees", why=f"its booster is {saved['gradient_booster']['name']}"
        )
    booster.set_param({"nthread": 1})  # one row at a time is slower on several
    # An estimator predicts with its best round after early stopping.
    best = None if model is booster else booster.attributes().get("best_iteration")
    last = int(best) + 1 if best is not None else int(booster.num_boosted_rounds())
    answers = _answers(model, saved, source)
    forest = _forest(saved, last, _missing(model))

    def answer(table: Array) -> dict[str, Any]:
        if isinstance(model, xgboost.Booster):
            span = {"iteration_range": (0, last), "validate_features": False}
            return {answers.scores: model.inplace_predict(table, **span)}
        if answers.classes or answers.several:
            return {answers.label: model.predict(table), answers.scores: model.predict_proba(table)}
        return {answers.scores: model.predict(table)}

    def margins(table: Array, start: int, stop: int) -> Array:
        options = {"predict_type": "margin", "missing": _missing(model), "validate_features": False}
        found = booster.inplace_predict(table, iteration_range=(start, stop), **options)
        return np.asarray(found - np.array(forest.base, np.float32))

    library = Library(answer, margins, last)
    return Booster("xgboost", _NAME, forest, answers, library, params, own="float32")


def _answers(model: Any, saved: Mapping[str, Any], source: Source) -> Answers:
    objective = saved["objective"]["name"]
    if objective not in _LINKS and objective not in _SUMS:
        raise unknown_objective(source, objective, (*_LINKS, *_SUMS))
    link = _LINKS.get(objective, "identity")
    if not isinstance(model, xgboost.XGBClassifier):
        is_share = objective in ("binary:logistic", "multi:softprob")
        return Answers(link, "probabilities" if is_share else "prediction")
    several = int(saved["learner_model_param"]["num_target"]) > 1
    if several or link not in ("sigmoid", "softmax", "step", "class"):
        return Answers(link, "probabilities", several=several)
    classes = [int(each) for each in model.classes_]
    return Answers(
        "softmax" if link == "class" else link, "probabilities", classes, both=link in ("sigmoid", "step")
    )


def _missing(model: Any) -> float:
    """Return the number that stands for a missing value beside NaN; NaN for none."""
    missing = getattr(model, "missing", None)
    return float(np.nan if missing is None else missing)


def _forest(saved: Mapping[str, Any], rounds: int, missing: float) -> Forest:
    link = _LINKS.get(saved["objective"]["name"], "identity")
    booster = saved["gradient_booster"]
    grown = booster.get("gbtree", booster)  # DART holds its trees one level down
    drops: Sequence[float] = booster.get("weight_drop") or []
    model, numbers = grown["model"], saved["learner_model_param"]
    targets = max(int(numbers["num_class"]), int(numbers["num_target"]), 1)
    base = np.fromstring(numbers["base_score"].strip("[]"), np.float64, sep=",")
    margin = _MARGINS.get(link, np.asarray)(base)
    forest = Forest(int(numbers["num_feature"]), targets, np.broadcast_to(margin, (targets,)).tolist())
    count = model["iteration_indptr"][rounds]
    for index, (tree, target) in enumerate(zip(model["trees"][:count], model["tree_info"], strict=False)):
        forest.trees.append(_tree(forest, tree, target, drops[index] if drops else 1.0, missing))
    return forest


def _tree(forest: Forest, saved: Mapping[str, Any], target: int, factor: float, missing: float) -> Tree:
    codes = _categories(saved)
    size = int(saved["tree_param"]["size_leaf_vector"])
    nodes: list[Branch | Leaf] = []
    for node, (left, right) in enumerate(zip(saved["left_children"], saved["right_children"], strict=True)):
        condition, column = saved["split_conditions"][node], saved["split_indices"][node]
        default_left = bool(saved["default_left"][node])
        if left == _LEAF:
            nodes.append(Leaf(_weights(saved, node, target, size, factor)))
        elif saved["split_type"][node] == _CATEGORICAL:
            if not np.isnan(missing):
                what = f"a categorical split, and {missing:g} as the missing value"
                raise CannotConvertError(what, fix="fit it with NaN for that")
            member = forest.place(Member(column, codes[node]))  # those in the set go right
            nodes.append(Branch(member, "BRANCH_LT", 0.5, left, right, default_left))
        else:
            asked = column if np.isnan(missing) else forest.place(Missing(column, missing))
            nodes.append(Branch(asked, "BRANCH_LT", float(np.float32(condition)), left, right, default_left))
    return nodes


def _weights(
    saved: Mapping[str, Any], node: int, target: int, size: int, factor: float
) -> Mapping[int, float]:
    if size <= 1:
        return {target: factor * saved["split_conditions"][node]}
    start, name = node * size, "base_weights"
    if "leaf_weights" in saved:  # in the order of the leaves, which the right child of each leaf tells
        start, name = saved["right_children"][node] * size, "leaf_weights"
    return {i: factor * weight for i, weight in enumerate(saved[name][start : start + size])}


def _categories(saved: Mapping[str, Any]) -> Mapping[int, frozenset[int]]:
    """Map nodes to the categories that go right."""
    starts, sizes = saved["categories_segments"], saved["categories_sizes"]
    return {
        node: frozenset(saved["categories"][start : start + size])
        for node, start, size in zip(saved["categories_nodes"], starts, sizes, strict=True)
    }
