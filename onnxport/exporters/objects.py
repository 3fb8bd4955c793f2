"""Objects from a factory, a pickle or a skops file; their class tells the framework."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from onnxport.core.errors import InputError, UsageError
from onnxport.core.user_modules import current_directory_first
from onnxport.exporters.framework import Framework
from onnxport.exporters.missing_modules import missing_module_error
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

# The package that a class lies in to the function that makes a Framework of its objects; the nearest base class that is
# listed decides: XGBClassifier is XGBoost's before it is scikit-learn's.
OF_OBJECTS: Mapping[str, str] = {
    "torch": "onnxport.exporters.pytorch:of_object",
    **dict.fromkeys(("keras", "tensorflow"), "onnxport.exporters.tensorflow:of_object"),
    **dict.fromkeys(("xgboost", "lightgbm", "catboost"), "onnxport.exporters.classical.boosters:of_object"),
    "sklearn": "onnxport.exporters.classical.estimators:of_object",
}


def from_pickle(source: Source, params: ExportParams) -> Framework:
    """Load a pickle or a joblib file; nothing is read without --trust.

    Raises:
        InputError: --trust is missing, or the file is damaged.
        MissingDependencyError: its classes are of a library that is not installed.
    """
    if not params.trust:
        raise InputError(
            f"{source.name} is a pickle",
            why="reading it can run any code",
            fix="if you trust its author, give --trust; a file of skops.io.dump does not need it",
        )
    return _collect_warnings(source, params, lambda: _unpickle(source))


def _unpickle(source: Source) -> Any:
    """Unpickle; joblib reads plain pickles as well as its own files."""
    try:
        import joblib
    except ModuleNotFoundError as error:
        raise missing_module_error(source.name, error) from error
    try:
        with current_directory_first(source.folder):
            return joblib.load(source.path)
    except ModuleNotFoundError as error:
        raise missing_module_error(source.name, error) from error
    except AttributeError as error:
        raise InputError(
            f"{source.name} cannot be read",
            why=f"{first_line(error)}: other versions wrote it, or a script that defined the class itself",
            fix="install the versions it was written with, or save it again with the class in a module",
        ) from error
    except Exception as error:  # whatever the code in it raises
        raise InputError(f"{source.name} cannot be read as a pickle", why=first_line(error)) from error


def from_skops(source: Source, params: ExportParams) -> Framework:
    """Load a skops file: types that skops knows to be safe, others with --trust.

    Raises:
        InputError: it holds other types, or is damaged.
        MissingDependencyError: its classes are of a library that is not installed.
    """
    return _collect_warnings(source, params, lambda: _load_skops(source, params))


def _load_skops(source: Source, params: ExportParams) -> Any:
    import skops.io

    try:
        others = skops.io.get_untrusted_types(file=source.path)
        if others and not params.trust:
            raise InputError(
                f"{source.name} holds types that skops does not know to be safe: {', '.join(others)}",
                why="loading them may run code of whoever wrote it",
                fix="if you trust that, give --trust",
            )
        with current_directory_first(source.folder):
            return skops.io.load(source.path, trusted=others)
    except ModuleNotFoundError as error:
        raise missing_module_error(source.name, error) from error
    except InputError:
        raise
    except (TypeError, AttributeError, ImportError) as error:
        raise InputError(
            f"{source.name} cannot be read",
            why=f"{first_line(error)}: it was written with other versions",
            fix="install the versions it was written with",
        ) from error
    except Exception as error:  # of a damaged file skops and NumPy raise anything
        raise InputError(
            f"{source.name} cannot be read as a skops file",
            why=first_line(error),
            fix="save it with skops.io.dump",
        ) from error


def _collect_warnings(source: Source, params: ExportParams, load: Callable[[], Any]) -> Framework:
    """Return the Framework of what `load` returns; library warnings become notes for the user."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load()
    said = [" ".join(str(each.message).split()) for each in caught if issubclass(each.category, UserWarning)]
    framework: Any = of_object(model, source, params)
    if hasattr(framework, "notes"):
        framework.notes += tuple(dict.fromkeys(said))
    noted: Framework = framework
    return noted


def of_object(model: Any, source: Source, params: ExportParams) -> Framework:
    """Return the Framework of an object; raise UsageError for an object of no known framework."""
    for kind in type(model).__mro__:
        function = OF_OBJECTS.get(kind.__module__.partition(".")[0])
        if function is not None:
            module, _, name = function.partition(":")
            framework: Framework = getattr(importlib.import_module(module), name)(model, source, params)
            return framework
    raise UsageError(
        f"{source.name} gives {_describe(model)}, which is not a known kind of model",
        fix=f"known are models of {', '.join(OF_OBJECTS)}",
    )


def _describe(found: object) -> str:
    kind = type(found)
    if found is None:
        return "None"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def is_model(found: object) -> bool:
    """Return whether the class belongs to a known framework."""
    return any(base.__module__.partition(".")[0] in OF_OBJECTS for base in type(found).__mro__)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
