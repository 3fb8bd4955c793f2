"""Objects that a factory, a pickle or a skops file gives: which framework they are of is told by their class."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from onnxport.errors import InputError, MissingDependencyError, UsageError
from onnxport.exporters.framework import Framework
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source
from onnxport.importing import current_directory_first

# The package that a class lies in to the function that makes a Framework of its objects; the nearest base class that is
# listed decides: XGBClassifier is XGBoost's before it is scikit-learn's.
OF_OBJECTS: Mapping[str, str] = {
    "torch": "onnxport.exporters.pytorch:of_object",
    "keras": "onnxport.exporters.tensorflow:of_object",
    "tensorflow": "onnxport.exporters.tensorflow:of_object",
    "xgboost": "onnxport.exporters.classical.boosters:of_object",
    "lightgbm": "onnxport.exporters.classical.boosters:of_object",
    "catboost": "onnxport.exporters.classical.boosters:of_object",
    "sklearn": "onnxport.exporters.classical.estimators:of_object",
}


def from_factory(source: Source, params: ExportParams) -> Framework:
    """What `package.module:function` gives.

    Raises:
        InputError: it cannot be imported, or raises.
        UsageError: no function, or what it gives is no model.
    """
    import yaml

    module_name, _, name = source.name.partition(":")
    try:
        with current_directory_first():
            found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InputError(
                f"{source.name} cannot be imported",
                why=f"there is no module {missing!r}",
                fix="run in the folder that holds it, or put that on PYTHONPATH",
            ) from error
        raise MissingDependencyError(
            f"{source.name} needs {missing}, which is not installed", fix=f"run: pip install {missing}"
        ) from error
    except Exception as error:
        raise InputError(f"{source.name} cannot be imported", why=_said(error)) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module_name} has no {name!r}", fix="write package.module:function")
        found = getattr(found, part)
    if isinstance(found, type) or not _is_model(found):
        arguments = {key: yaml.safe_load(value) for key, value in params.arg.items()}
        try:
            found = found(**arguments)
        except Exception as error:
            given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise InputError(f"{source.name}({given}) raises", why=_said(error)) from error
    return of_object(found, source, params)


def of_object(model: Any, source: Source, params: ExportParams) -> Framework:
    """The Framework of an object; UsageError where it is none of a framework that is known."""
    for kind in type(model).__mro__:
        function = OF_OBJECTS.get(kind.__module__.partition(".")[0])
        if function is not None:
            module, _, name = function.partition(":")
            framework: Framework = getattr(importlib.import_module(module), name)(model, source, params)
            return framework
    raise UsageError(
        f"{source.name} gives {type(model).__module__}.{type(model).__qualname__}, which is no model we know",
        fix=f"known are those of {', '.join(OF_OBJECTS)}",
    )


def _is_model(found: Any) -> bool:
    return any(base.__module__.partition(".")[0] in OF_OBJECTS for base in type(found).__mro__)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
