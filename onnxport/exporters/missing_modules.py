"""The error for a missing module: it names the extra of ours that brings it, or the module."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from onnxport.core.errors import MissingDependencyError

# Modules to the extra of ours that they come with.
EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(("torch", "onnxscript"), "torch"),
    **dict.fromkeys(("tensorflow", "keras", "tf2onnx"), "tensorflow"),
    **dict.fromkeys(("sklearn", "joblib", "pandas", "skl2onnx", "skops"), "sklearn"),
    **dict.fromkeys(("xgboost", "lightgbm", "catboost"), "boosting"),
}


def missing_module_error(name: str, error: ModuleNotFoundError) -> MissingDependencyError:
    """Return the error; `name` is what needs the module."""
    missing = (error.name or str(error)).partition(".")[0]
    extra = EXTRAS.get(missing)
    return MissingDependencyError(
        f"{name} needs {missing}, which is not installed",
        fix=f"run: {sys.executable} -m pip install 'onnxport[{extra}]'"
        if extra
        else f"install what brings the module {missing}, or put the folder that holds it on PYTHONPATH",
    )
