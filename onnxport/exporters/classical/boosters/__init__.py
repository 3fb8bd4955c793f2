"""Boosted trees of XGBoost, LightGBM and CatBoost: read into one form, and exported from it.

Not by onnxmltools: 1.16 leaves out LightGBM's linear leaves, its `sigmoid` and `reg_sqrt`, divides its forests by 100
however many trees they have, rounds its thresholds to the nearest float32, and refuses DART, missing values other than
NaN and rankers of XGBoost.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

if TYPE_CHECKING:
    from onnxport.exporters.classical.boosters.booster import Booster

_MODULES: Mapping[str, str] = {kind: f"{__name__}.{kind}" for kind in ("xgboost", "lightgbm", "catboost")}


def load(source: Source, params: ExportParams) -> Booster:
    """Load a file of one of the libraries; see framework.py."""
    return load_booster(source.kind, "load", source, params)


def of_object(model: Any, source: Source, params: ExportParams) -> Booster:
    """Load a booster, or an estimator of one of the libraries."""
    return load_booster(_libraries(type(model))[0], "of_object", model, source, params)


def is_booster(kind: type) -> bool:
    """Return whether a class belongs to one of the libraries."""
    return bool(_libraries(kind))


def _libraries(kind: type) -> list[str]:
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return [package for package in packages if package in _MODULES]


def load_booster(kind: str, function: str, *args: Any) -> Booster:
    booster: Booster = getattr(importlib.import_module(_MODULES[kind]), function)(*args)
    return booster
