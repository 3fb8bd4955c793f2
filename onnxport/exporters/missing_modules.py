"""The error for a missing module: it names the extra of ours that brings it, or the module."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec

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
    module = error.name or str(error)
    missing = module.partition(".")[0]
    if missing != module and find_spec(missing) is not None:
        return MissingDependencyError(
            f"{name} needs the module {module}, which the installed {missing} does not have",
            why=f"it was written with another version of {missing}",
            fix=f"save it again with a newer one, or export it in an environment with that version of {missing}",
        )
    extra = EXTRAS.get(missing)
    return MissingDependencyError(
        f"{name} needs {missing}, which is not installed",
        fix=f"run: {sys.executable} -m pip install 'onnxport[{extra}]'"
        if extra
        else f"install what brings the module {missing}, or put the folder that holds it on PYTHONPATH",
    )
