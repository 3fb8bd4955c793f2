"""scikit-learn: fitted estimators and pipelines, converted by skl2onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import skl2onnx
import sklearn
import threadpoolctl
from sklearn.base import is_outlier_detector, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.exporters.classical.columns import find_columns, is_text
from onnxport.exporters.classical.conversion import MISSING, convert, final_estimator
from onnxport.exporters.classical.domains import find_domains
from onnxport.exporters.classical.tabular import Columns, TabularModel, widen
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

# Probabilities that are so close differ by what sums in float32 leave.
_TIE = 2.0**-20


def of_object(model: Any, source: Source, params: ExportParams) -> TabularModel:
    """Load a fitted estimator.

    Raises:
        InputError: it is not fitted.
        UsageError: --input does not fit it.
        CannotConvertError: skl2onnx has no converter for a part of it.
    """
    # Many short runs follow, in which threads of a busy machine wait for each other.
    threadpoolctl.threadpool_limits(limits=1)
    _check_fitted(model, source)
    columns = find_columns(model, params.input, float64=params.float64, source=source.name)
    export = lru_cache(partial(convert, model, columns, source=source.name))
    names = [value.name for value in export(None).graph.output]
    return TabularModel(
        kind="sklearn",
        name=f"scikit-learn {sklearn.__version__}",
        exporter=f"skl2onnx {skl2onnx.__version__}",
        inputs=widen(columns.specs),
        convert=export,
        answer=partial(_answers, model, columns, names),
        other_answer=partial(_flip_ties, model, columns, names) if _has_ties(model, names) else None,
        features=columns.names,
        classes=_classes(model) if "probabilities" in names else (),
        domains=find_domains(model, columns, float64=params.float64),
    )


def _check_fitted(model: Any, source: Source) -> None:
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InputError(
            f"{source.name} holds a {type(model).__name__} that is not fitted",
            why="it has learned nothing that could be exported",
            fix="save it after fit()",
        ) from error
    except TypeError as error:
        raise InputError(f"{source.name} holds no estimator", why=str(error)) from error


def _answers(model: Any, columns: Columns, names: list[str], feeds: Feeds) -> Mapping[str, Any]:
    table = _table(model, columns, feeds)
    return {name: _OUTPUTS.get(name, _values)(model, table) for name in names}


def _classes(model: Any) -> list[int | str]:
    """Return classes as Python integers and texts; nothing for several outputs or other labels."""
    classes = getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.dtype.kind not in "iuUO":
        return []
    return [each if isinstance(each, str) else int(each) for each in classes.tolist()]


def _has_ties(model: Any, names: list[str]) -> bool:
    classes = getattr(model, "classes_", None)
    sure = hasattr(model, "predict_proba") and isinstance(classes, np.ndarray)
    return sure and {"label", "probabilities"} <= {*names}


def _flip_ties(model: Any, columns: Columns, names: list[str], feeds: Feeds) -> Mapping[str, Any]:
    """Return the answers, with the other label where two classes are equally probable up to rounding.

    Half of a forest's trees on either side is common; sums in another order decide otherwise.
    """
    answers = dict(_answers(model, columns, names, feeds))
    labels, probabilities = np.array(answers["label"]), np.asarray(answers["probabilities"])
    close = probabilities >= probabilities.max(axis=1, keepdims=True) - _TIE
    others = close & (np.asarray(model.classes_) != labels[:, None])
    tied = (close.sum(axis=1) > 1) & others.any(axis=1)
    labels[tied] = np.asarray(model.classes_)[others.argmax(axis=1)][tied]
    return {**answers, "label": labels}


def _table(model: Any, columns: Columns, feeds: Feeds) -> Any:
    """Return the argument of the estimator's methods: texts, a DataFrame if it was fitted on one, else an array."""
    if is_text(model):
        return feeds[columns.specs[0].name][:, 0]
    arrays = [_fill_missing(feeds[spec.name]) for spec in columns.specs]
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return arrays[0] if len(arrays) == 1 else np.concatenate([each.astype(object) for each in arrays], 1)
    import pandas

    if len(arrays) == 1:
        return pandas.DataFrame(arrays[0], columns=names)
    frame = {spec.name: each[:, 0] for spec, each in zip(columns.specs, arrays, strict=True)}
    # Columns that no step reads are none of the inputs; what stands in them does not matter.
    return pandas.DataFrame({name: frame.get(name, 0.0) for name in names})


def _fill_missing(values: Array) -> Array:
    if values.dtype.kind not in "OUS":
        return values
    texts = values.astype(object)
    texts[texts == MISSING] = np.nan
    return texts


def _probabilities(model: Any, table: Any) -> Any:
    """Return a classifier's probabilities, or its decision function, one column per class."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(table)
    scores = np.asarray(model.decision_function(table))
    if scores.ndim > 1:
        return scores
    return np.stack([-scores, scores], axis=1)


def _scores(model: Any, table: Any) -> Any:
    """Return scores: below 0 for outliers; the distance to each cluster."""
    is_outlier = is_outlier_detector(final_estimator(model))
    return model.decision_function(table) if is_outlier else model.transform(table)


def _values(model: Any, table: Any) -> Any:
    found = model.predict(table) if is_regressor(model) else model.transform(table)
    return found.toarray() if hasattr(found, "toarray") else found


# What skl2onnx calls the outputs, and who answers for them; every other name is a prediction or a transformed table.
_OUTPUTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "label": lambda model, table: model.predict(table),
    "probabilities": _probabilities,
    "scores": _scores,
}
