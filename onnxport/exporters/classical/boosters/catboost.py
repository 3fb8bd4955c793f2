"""Read CatBoost's model, as JSON, into a Forest.

CatBoost's own ONNX export is not used: what it writes ends in dictionaries, and knows neither the other tree shapes nor
the labels' types. It compares in float32. Splits on categories hash their texts, which ONNX cannot.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import catboost
import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, InputError
from onnxport.exporters.classical.boosters.booster import Booster, Library
from onnxport.exporters.classical.boosters.forest import Answers, Branch, Forest, Leaf, Link, Tree
from onnxport.exporters.classical.tabular import first_line
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

_NAME = f"CatBoost {catboost.__version__}, CPU"

# Loss to what turns sums into predictions, and what CatBoost calls that.
_LINKS: Mapping[str, Link] = {
    **dict.fromkeys(("Logloss", "CrossEntropy", "Focal", "MultiLogloss", "MultiCrossEntropy"), "sigmoid"),
    "MultiClass": "softmax",
    "MultiClassOneVsAll": "sigmoid",
    **dict.fromkeys(("Poisson", "Tweedie"), "exp"),
    **dict.fromkeys(
        "RMSE MAE Quantile LogLinQuantile MAPE Lq Huber Expectile LogCosh MultiRMSE MultiQuantile PairLogit "
        "PairLogitPairwise QueryRMSE QuerySoftMax YetiRank YetiRankPairwise StochasticRank LambdaMart".split(),
        "identity",
    ),
}
_TYPES: Mapping[Link, str] = {
    "sigmoid": "Probability",
    "softmax": "Probability",
    "exp": "Exponent",
    "identity": "RawFormulaVal",
}
# Of the base class: that of a ranker has no choice of what it predicts.
_PREDICT = catboost.CatBoost.predict
_SEVERAL = ("MultiLogloss", "MultiCrossEntropy")
_NAN_SAYS_YES = "AsTrue"


def load(source: Source, params: ExportParams) -> Booster:
    """Load the model in a `.cbm` file; InputError if it is none."""
    model = catboost.CatBoost()
    try:
        model.load_model(str(source.files[0]))
        return of_object(model, source, params)
    except catboost.CatBoostError as error:
        raise InputError(f"{source.name} is not a CatBoost model", why=first_line(error)) from error
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # CatBoost copies what it does not use
        raise InputError(
            f"{source.name} is damaged",
            why=f"its description of itself cannot be read, {first_line(error)}",
            fix="save the model again",
        ) from error


def of_object(model: Any, source: Source, params: ExportParams) -> Booster:
    """Load a CatBoost, CatBoostClassifier, CatBoostRegressor or CatBoostRanker.

    Raises:
        InputError: it was not fitted.
        CannotConvertError: it splits on categories, texts or embeddings, or has a loss that is not known.
    """
    if not model.is_fitted():
        raise InputError(
            f"the {type(model).__name__} of {source.name} was not fitted", fix="call fit() before the export"
        )
    saved = _save(model, source)
    answers = _answers(saved, source)
    forest = _forest(saved, source)
    bias = np.array(saved["scale_and_bias"][1])

    def predict(table: Array) -> dict[str, Any]:
        scores = _PREDICT(model, table, prediction_type=_TYPES[answers.link], thread_count=1)
        found = {answers.scores: scores}
        if answers.classes or answers.several:
            labels = _PREDICT(model, table, prediction_type="Class", thread_count=1)
            found[answers.label] = labels if answers.several else labels.reshape(-1)
        return found

    def sums(table: Array, stop: int) -> Array:
        """Of the first trees, the bias among them; of all where `stop` is 0."""
        raw = _PREDICT(model, table, prediction_type="RawFormulaVal", ntree_end=stop, thread_count=1)
        return np.asarray(raw).reshape(len(table), -1)

    def margins(table: Array, start: int, stop: int) -> Array:
        return sums(table, stop) - (sums(table, start) if start else bias)

    library = Library(predict, margins, len(forest.trees))
    return Booster("catboost", _NAME, forest, answers, library, params, own="float32")


def _save(model: Any, source: Source) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="catboost-") as folder:
        path = Path(folder) / "model.json"
        try:
            model.save_model(str(path), format="json")
        except catboost.CatBoostError as error:
            raise CannotConvertError(f"{source.name} cannot be read", why=first_line(error)) from error
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


def _answers(saved: Mapping[str, Any], source: Source) -> Answers:
    about = saved["model_info"]
    loss = about.get("params", {}).get("loss_function", {}).get("type", "RMSE")
    if loss not in _LINKS:
        raise CannotConvertError(
            f"{source.name} has the loss {loss!r}",
            why="onnxport does not support its output function",
            fix=f"supported are {', '.join(_LINKS)}",
        )
    link = _LINKS[loss]
    if loss in _SEVERAL:
        return Answers(link, "probabilities", several=True)
    labels = about.get("class_params", {})
    classes = labels.get("class_names", [])
    if labels.get("class_label_type") == "Boolean":  # its predictions say True and False in text
        classes = [str(name) for name in classes]
    if link not in ("sigmoid", "softmax") or not classes:
        return Answers(link, "probabilities" if link in ("sigmoid", "softmax") else "prediction")
    return Answers(link, "probabilities", classes, both=loss not in ("MultiClass", "MultiClassOneVsAll"))


def _forest(saved: Mapping[str, Any], source: Source) -> Forest:
    _check_features(saved["features_info"], source)
    features = saved["features_info"]["float_features"]
    columns = {each["feature_index"]: each for each in features}
    scale, bias = saved["scale_and_bias"]
    nan = frozenset(each["flat_feature_index"] for each in features if each["has_nans"])
    width = max(each["flat_feature_index"] for each in features) + 1
    forest = Forest(width, len(bias), bias, nan=nan)
    for tree in saved.get("oblivious_trees", []):
        forest.trees.append(_oblivious_tree(tree, columns, len(bias), scale))
    for tree in saved.get("trees", []):
        forest.trees.append(_free_tree(tree, columns, len(bias), scale))
    return forest


def _check_features(features: Mapping[str, Any], source: Source) -> None:
    for kind in ("categorical", "text", "embedding"):
        if found := features.get(f"{kind}_features"):
            names = ", ".join(str(each.get("feature_id") or each["flat_feature_index"]) for each in found[:5])
            raise CannotConvertError(
                f"{source.name} has {kind} features",
                why=f"CatBoost splits on hashes of them, which ONNX has no operator for ({names})",
                fix="encode them as numbers before CatBoost sees them (one_hot or ordinal), and fit it again",
            )


def _oblivious_tree(tree: Mapping[str, Any], columns: Mapping[int, Any], targets: int, scale: float) -> Tree:
    """Read a tree with one question per level; the answers are the bits of the leaf's number, lowest first."""
    splits, values = tree.get("splits") or [], tree["leaf_values"]
    nodes: list[Branch | Leaf] = []
    for level, split in enumerate(splits):
        first = 2**level - 1
        nodes += [
            _branch(split, columns, 2 * (first + index) + 2, 2 * (first + index) + 1)
            for index in range(2**level)
        ]
    for path in range(2 ** len(splits)):
        leaf = int(f"{path:0{len(splits)}b}"[::-1], 2) if splits else 0
        nodes.append(_leaf(values[leaf * targets : (leaf + 1) * targets], scale))
    return nodes


def _free_tree(root: Mapping[str, Any], columns: Mapping[int, Any], targets: int, scale: float) -> Tree:
    """Read a tree whose branches each have their own question."""
    nodes: list[Any] = [None]
    pending = [(0, root)]
    while pending:
        place, found = pending.pop()
        if "split" not in found:
            value = found["value"]
            nodes[place] = _leaf(value if isinstance(value, list) else [value], scale)
            continue
        yes, no = len(nodes), len(nodes) + 1
        nodes += [None, None]
        nodes[place] = _branch(found["split"], columns, yes, no)
        pending += [(yes, found["right"]), (no, found["left"])]
    return nodes


def _branch(split: Mapping[str, Any], columns: Mapping[int, Any], yes: int, no: int) -> Branch:
    column = columns[split["float_feature_index"]]
    missing = column["nan_value_treatment"] == _NAN_SAYS_YES
    border = float(np.float32(split["border"]))
    return Branch(column["flat_feature_index"], "BRANCH_GT", border, yes, no, missing)


def _leaf(values: Sequence[float], scale: float) -> Leaf:
    return Leaf({target: scale * value for target, value in enumerate(values)})
