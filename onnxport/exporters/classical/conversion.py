"""Call skl2onnx: options, workarounds, and its refusals as errors."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import skl2onnx
from skl2onnx._supported_operators import sklearn_operator_name_map
from skl2onnx.common import _container, data_types, exceptions, tree_ensemble
from skl2onnx.common._registration import get_converter
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier, is_regressor

from onnxport.core.errors import CannotConvertError
from onnxport.exporters.classical.boosters import is_booster
from onnxport.exporters.classical.boosters.pipelines import register
from onnxport.exporters.classical.columns import positions
from onnxport.exporters.classical.float64_types import repair_types
from onnxport.exporters.classical.tabular import Columns

# What a missing text is: ONNX's strings have no NaN, and skl2onnx writes the category NaN as this.
MISSING = "nan"
# The newest opset is not every converter's; what is asked for beyond is the business of optimizers.opset.
_OPSET = 21
_ML = 3  # of ai.onnx.ml: thresholds in float64; 4 and 5 are not every converter's
_TYPES = {
    "float32": data_types.FloatTensorType,
    "float64": data_types.DoubleTensorType,
    "int64": data_types.Int64TensorType,
    "int32": data_types.Int32TensorType,
    "bool": data_types.BooleanTensorType,
    "string": data_types.StringTensorType,
}


def convert(model: Any, columns: Columns, opset: int | None, source: str) -> onnx.ModelProto:
    """Convert the estimator to ONNX, with probabilities as a tensor; CannotConvertError for what skl2onnx refuses."""
    model = _prepare(model, source, is_one_tensor=len(columns.specs) == 1)
    for part in fitted_parts(model):
        register(part)
    types = [(spec.name, _type_of(spec.dtype, spec.shape[1])) for spec in columns.specs]
    try:
        with warnings.catch_warnings(), _patched_library():
            warnings.simplefilter("ignore")
            proto: onnx.ModelProto = skl2onnx.convert_sklearn(
                model,
                "model",
                types,
                target_opset={"": min(opset or _OPSET, _OPSET), "ai.onnx.ml": _ML},
                options=_options(model),
            )
    except (exceptions.MissingShapeCalculator, exceptions.MissingConverter) as error:
        raise _without_converter(model, source) from error
    except _REFUSALS as error:
        without = _unsupported_classes(model)
        if without:
            raise _without_converter(model, source) from error
        raise CannotConvertError(
            f"skl2onnx {skl2onnx.__version__} cannot convert {source}",
            why=_message(error),
            fix="leave the unsupported step out of the pipeline",
        ) from error
    _merge_opsets(proto)
    _name_inputs(proto.graph, [spec.name for spec in columns.specs])
    if any(spec.dtype == "float64" for spec in columns.specs):
        repair_types(
            proto,
            [each.statistics_ for each in fitted_parts(model) if _imputes_numbers(each)],
            [_thresholds(each) for each in fitted_parts(model) if hasattr(each, "_predictors")],
        )
    return proto


# What converters raise beside skl2onnx's own exceptions; NotImplementedError is a RuntimeError.
_REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, NameError, AssertionError)


def _type_of(dtype: str, width: Any) -> Any:
    if dtype not in _TYPES:
        raise CannotConvertError(
            f"skl2onnx does not support columns of {dtype}", fix=f"give one of {', '.join(_TYPES)}"
        )
    return _TYPES[dtype]([None, width])


def _options(model: Any) -> dict[int, dict[str, Any]]:
    """Return options: tensors instead of dictionaries; the decision function where there are no probabilities."""
    last = final_estimator(model)
    if not is_classifier(last):
        return {}
    try:
        allowed = get_converter(sklearn_operator_name_map[type(last)]).get_allowed_options()
    except (KeyError, ValueError):
        return {}
    wanted: dict[str, Any] = {"zipmap": False}
    wanted |= {} if hasattr(model, "predict_proba") else {"raw_scores": True}
    chosen = {name: value for name, value in wanted.items() if name in (allowed or ())}
    return {id(last): chosen} if chosen else {}


def final_estimator(model: Any) -> Any:
    """Return the estimator that answers: the last step, or the best of a search."""
    if hasattr(model, "best_estimator_"):
        return final_estimator(model.best_estimator_)
    return final_estimator(model.steps[-1][1]) if hasattr(model, "steps") else model


def _prepare(model: Any, source: str, *, is_one_tensor: bool) -> Any:
    """Return a copy whose text imputers take MISSING for missing; refuse categories that skl2onnx takes for numbers.

    Args:
        is_one_tensor: whether all columns are one input, in which skl2onnx finds columns by their positions alone.
    """
    if not any(_is_changed(each, is_one_tensor) for each in fitted_parts(model)):
        return model
    twin = copy.deepcopy(model)
    for each in fitted_parts(twin):
        if is_one_tensor and _names_columns(each):
            known = [str(name) for name in each.feature_names_in_]
            each.transformers_ = [
                (name, step, list(positions(chosen, known))) for name, step, chosen in each.transformers_
            ]
        if _imputes_texts(each):
            each.missing_values = MISSING
        for tree in (tree for trees in getattr(each, "_predictors", ()) for tree in trees):
            if tree.nodes["is_categorical"].any():
                raise CannotConvertError(
                    f"{source} cannot be converted",
                    why=f"skl2onnx {skl2onnx.__version__} takes the categories of {type(each).__name__} for numbers",
                    fix="encode them before it, with OneHotEncoder, and train again",
                )
    return twin


def _is_changed(step: Any, is_one_tensor: bool) -> bool:
    return _imputes_texts(step) or hasattr(step, "_predictors") or (is_one_tensor and _names_columns(step))


def _names_columns(step: Any) -> bool:
    """Return whether a step chooses columns of a DataFrame."""
    return hasattr(step, "transformers_") and hasattr(step, "feature_names_in_")


def _imputes_texts(step: Any) -> bool:
    learned = getattr(step, "statistics_", None)
    missing = getattr(step, "missing_values", None)
    texts = learned is not None and any(isinstance(each, str) for each in learned)
    return texts and (missing is None or (isinstance(missing, float) and np.isnan(missing)))


def _thresholds(boosting: Any) -> np.ndarray[Any, Any]:
    """Return the thresholds of all nodes of all trees in skl2onnx's order, 0 for leaves."""
    nodes = [tree.nodes for trees in boosting._predictors for tree in trees]
    return np.concatenate([np.where(each["is_leaf"], 0.0, each["num_threshold"]) for each in nodes])


def _imputes_numbers(step: Any) -> bool:
    learned = getattr(step, "statistics_", None)
    return isinstance(learned, np.ndarray) and learned.dtype.kind == "f"


def fitted_parts(model: Any) -> Iterator[Any]:
    """Return the fitted estimators of `model`, itself first."""
    yield model
    if hasattr(model, "best_estimator_"):
        yield from fitted_parts(model.best_estimator_)
        return
    if hasattr(model, "transformers_"):
        inner = [step for _, step, _ in model.transformers_]
    elif hasattr(model, "steps") or hasattr(model, "transformer_list"):
        inner = [step for _, step in getattr(model, "steps", None) or model.transformer_list]
    else:
        names = "estimator_ estimators_ final_estimator_ calibrated_classifiers_ transformer_".split()
        inner = [part for name in names for part in _nested_parts(getattr(model, name, None))]
    for step in inner:
        if isinstance(step, BaseEstimator) or is_booster(type(step)):  # CatBoost's have no base
            yield from fitted_parts(step)


def _nested_parts(found: Any) -> list[Any]:
    if isinstance(found, np.ndarray):
        return list(found.ravel())
    return list(found) if isinstance(found, (list, tuple)) else [] if found is None else [found]


def _unsupported_classes(model: Any) -> list[type]:
    """Return the classes in `model` without a converter in skl2onnx."""
    found = dict.fromkeys(type(each) for each in fitted_parts(model))
    return [
        kind for kind in found if kind not in sklearn_operator_name_map and kind.__name__ not in _WRAPPERS
    ]


# Estimators that skl2onnx unwraps before it looks for a converter.
_WRAPPERS = ("Pipeline", "ColumnTransformer", "FeatureUnion", "_CalibratedClassifier")


def _without_converter(model: Any, source: str) -> CannotConvertError:
    missing = _unsupported_classes(model) or [type(final_estimator(model))]
    alike = _family(final_estimator(model))
    known = sorted({each.__name__ for each in sklearn_operator_name_map if _family_of_class(each) == alike})
    names = " and ".join(f"{each.__module__.partition('.')[0]}'s {each.__name__}" for each in missing)
    return CannotConvertError(
        f"{source} cannot be converted",
        why=f"skl2onnx {skl2onnx.__version__} has no converter for {names}",
        fix=f"{alike} that it converts: {', '.join(known)}",
    )


_OTHERS = "transformers and others"


def _family(estimator: Any) -> str:
    return "classifiers" if is_classifier(estimator) else "regressors" if is_regressor(estimator) else _OTHERS


def _family_of_class(kind: type) -> str:
    if issubclass(kind, ClassifierMixin):
        return "classifiers"
    return "regressors" if issubclass(kind, RegressorMixin) else _OTHERS


@contextmanager
def _patched_library() -> Iterator[None]:
    """Patch skl2onnx 1.20: integers for booleans, which onnx 1.23 refuses, and thresholds not rounded for float64."""
    made, threshold = _container.make_node, tree_ensemble.sklearn_threshold

    def make_node(*args: Any, **attributes: Any) -> Any:
        return made(*args, **{name: _integers(value) for name, value in attributes.items()})

    def float32_threshold(number: Any, dtype: Any, mode: str) -> Any:
        return threshold(number, np.float32, mode)

    _container.make_node, tree_ensemble.sklearn_threshold = make_node, float32_threshold
    try:
        yield
    finally:
        _container.make_node, tree_ensemble.sklearn_threshold = made, threshold


def _integers(value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(each, (bool, np.bool_)) for each in value):
        return [int(each) for each in value]
    return value


def _name_inputs(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Give the inputs their columns' names, in which skl2onnx replaces all but letters and digits."""
    renamed = {value.name: name for value, name in zip(graph.input, names, strict=True)}
    inner = {name for node in graph.node for name in node.output} & set(names)
    renamed |= {name: f"{name}_inner" for name in inner}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for value in (*graph.input, *graph.output):
        value.name = renamed.get(value.name, value.name)


def _merge_opsets(proto: onnx.ModelProto) -> None:
    """Keep one entry per domain, the highest: skl2onnx writes some twice."""
    versions: Mapping[str, int] = {}
    for entry in proto.opset_import:
        versions = {**versions, entry.domain: max(entry.version, versions.get(entry.domain, 0))}
    del proto.opset_import[:]
    proto.opset_import.extend(
        onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()
    )


def _message(error: BaseException) -> str:
    text = re.split(r" (?:You may raise|Please fill) an iss?ue at", " ".join(str(error).split()))[0]
    return text[:300].rstrip(".") or type(error).__name__
