"""Domains of a fitted estimator's columns, from what it learned: categories, thresholds, means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.exporters.classical.columns import first_step, is_text, steps_by_column
from onnxport.exporters.classical.conversion import MISSING, fitted_parts
from onnxport.exporters.classical.tabular import Columns
from onnxport.samples.columns import Column
from onnxport.samples.domain import Domain

# Thresholds of one column that are drawn from, at most.
_LEVELS = 256
# Deviations from the mean between which numbers are drawn, where no threshold is known.
_SPREADS = (-2.0, -1.0, 0.0, 1.0, 2.0)
# A text that no encoder knows.
_UNSEEN = "unseen"
# Generated texts, and the words of each.
_SENTENCES, _MOST_WORDS = 64, 8
# Estimators that answer by comparing: an answer that jumps where a value moves by a float is no rounding.
_COMPARING = ("KNeighborsClassifier", "KNeighborsRegressor", "KBinsDiscretizer", "Binarizer")


def find_domains(model: Any, columns: Columns, *, float64: bool) -> dict[str, Domain]:
    """Map input names to their domains."""
    is_smooth = not any(_compares(each) for each in fitted_parts(model))
    known = (Column(codes=_sentences(model)),) if is_text(model) else _columns(model, columns)
    precision = "float64" if float64 else "float32"
    if len(columns.specs) == 1:
        return {columns.specs[0].name: _domain(known, is_smooth, precision)}
    return {
        spec.name: _domain((column,), is_smooth, precision)
        for spec, column in zip(columns.specs, known, strict=True)
    }


def _sentences(model: Any) -> tuple[str, ...]:
    """Return texts of words that the first step knows, in small and in capital letters, and of one that it does not."""
    known = sorted(map(str, first_step(model).vocabulary_))
    random = np.random.default_rng(0)
    chosen = [
        " ".join(
            [*(known[place] for place in random.integers(0, len(known), words)), _UNSEEN][: max(words, 1)]
        )
        for words in random.integers(0, _MOST_WORDS + 1, _SENTENCES)
    ]
    return tuple(text.upper() if place % 4 == 3 else text for place, text in enumerate(chosen))


def _domain(columns: Sequence[Column], is_smooth: bool, precision: str) -> Domain:
    return Domain("table", columns=tuple(columns), is_smooth=is_smooth, precision=precision)


def _compares(part: Any) -> bool:
    return hasattr(part, "tree_") or hasattr(part, "_predictors") or type(part).__name__ in _COMPARING


def _columns(model: Any, columns: Columns) -> tuple[Column, ...]:
    """Return the domains in the order of the columns."""
    width = sum(int(str(spec.shape[1])) for spec in columns.specs)
    names = columns.names or tuple(str(place) for place in range(width))
    steps = steps_by_column(model, names)
    levels = _thresholds(model, width)
    return tuple(
        _column(steps.get(name), levels[place] if levels else ()) for place, name in enumerate(names[:width])
    )


def _column(reader: tuple[Any, int] | None, levels: Sequence[float]) -> Column:
    """Return the domain of a column from the step that reads it first and its position there."""
    if reader is None:
        return Column(levels=tuple(levels), missing=False)
    step, place = reader
    # HistGradientBoosting has _predictors; other trees take NaN only where they were fitted with it.
    missing = any(
        type(part).__name__ in ("SimpleImputer", "KNNImputer") or hasattr(part, "_predictors")
        for part in fitted_parts(step)
    )
    first = first_step(step)
    learned = (getattr(part, "categories_", None) for part in fitted_parts(step))
    categories = next((each[place] for each in learned if each is not None and len(each) > place), None)
    if categories is not None:
        return Column(codes=_codes(first, categories, missing), missing=missing and _is_number(categories))
    return Column(levels=tuple(levels) or _numbers_around(step, place), missing=missing)


def _is_number(categories: Any) -> bool:
    return not any(isinstance(each, str) for each in categories)


def _codes(first: Any, categories: Any, missing: bool) -> tuple[Any, ...]:
    known = [each for each in categories if isinstance(each, str) or each == each]
    if _is_number(categories):
        return tuple(float(each) for each in known)
    unseen = [_UNSEEN] if getattr(first, "handle_unknown", "error") != "error" else []
    return (*known, *unseen, *([MISSING] if missing or len(known) < len(categories) else []))


def _numbers_around(step: Any, place: int) -> tuple[float, ...]:
    """Return numbers around those that the step was fitted on; none if it does not tell."""
    for part in fitted_parts(step):
        center, spread = _location(part)
        if center is not None and len(center) > place:
            wide = float(spread[place]) if spread is not None and len(spread) > place else 1.0
            return tuple(float(center[place]) + share * wide for share in _SPREADS)
    return ()


def _location(part: Any) -> tuple[Array | None, Array | None]:
    """Return mean and deviation of the data that a part was fitted on, as far as it remembers."""
    fitted = next(
        (
            found
            for name in ("_fit_X", "cluster_centers_", "support_vectors_", "theta_", "means_", "X_train_")
            if isinstance(found := getattr(part, name, None), np.ndarray) and found.ndim == 2
        ),
        None,
    )
    if fitted is not None and len(fitted) > 1:
        return fitted.mean(axis=0), fitted.std(axis=0)
    if hasattr(part, "data_min_") and hasattr(part, "data_max_"):
        return (part.data_min_ + part.data_max_) / 2, (part.data_max_ - part.data_min_) / 4
    for center, spread in (("mean_", "scale_"), ("center_", "scale_"), ("mean_", ""), ("", "scale_")):
        found = getattr(part, center, None) if center else 0.0
        wide = getattr(part, spread, None) if spread else None
        if found is not None and (center or wide is not None):
            wide = None if wide is None else np.ravel(wide)
            return np.ravel(found) if center else np.zeros_like(wide), wide
    return None, None


def _thresholds(model: Any, width: int) -> list[list[float]]:
    """Return the thresholds per column of trees that read raw columns; nothing for others."""
    found: list[list[float]] = [[] for _ in range(width)]
    for feature, threshold in _branches(model):
        if feature < width:
            found[feature].append(threshold)
    if not any(found):
        return []
    return [_sample(sorted(set(levels))) for levels in found]


def _sample(levels: list[float]) -> list[float]:
    return [levels[place] for place in np.linspace(0, len(levels) - 1, min(len(levels), _LEVELS)).astype(int)]


def _branches(model: Any) -> Iterator[tuple[int, float]]:
    """Return feature and threshold of every branch of a tree, or of a forest over all columns."""
    if hasattr(model, "tree_"):
        tree = model.tree_
        yield from (
            (int(feature), float(threshold))
            for feature, threshold in zip(tree.feature, tree.threshold, strict=True)
            if feature >= 0
        )
    elif hasattr(model, "_predictors"):
        for tree in (tree for trees in model._predictors for tree in trees):
            for node in tree.nodes[tree.nodes["is_leaf"] == 0]:
                # Other than most trees it reads float64. Between a threshold and the float32 above it no export to
                # float32 is right; data lie there seldom, what is drawn at a threshold would do so every other time.
                threshold = float(node["num_threshold"])
                if float(np.float32(threshold)) <= threshold:
                    yield int(node["feature_idx"]), threshold
    elif not hasattr(model, "steps") and not hasattr(model, "estimators_features_"):
        for member in np.ravel(np.asarray(getattr(model, "estimators_", ()), dtype=object)):
            if hasattr(member, "tree_"):
                yield from _branches(member)
