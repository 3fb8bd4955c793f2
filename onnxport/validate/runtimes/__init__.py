"""The runtimes that answer for artefacts, one module each; a module imports its library, and only `load` the module."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from onnxport.artifact import Artifact
from onnxport.errors import MissingDependencyError
from onnxport.validate.runtimes.base import Runtime
from onnxport.validate.runtimes.options import RuntimeOptions

__all__ = ["Runtime", "load"]


_DEFAULT = RuntimeOptions()


def load(path: str | os.PathLike[str], options: RuntimeOptions = _DEFAULT) -> Runtime:
    """The model at `path`, ready to run in this process.

        with onnxport.load("model.tflite") as model:
            scores = model.run({"image": image})["scores"]

    Raises:
        InputError: missing, unreadable, damaged, or of an unknown extension.
        MissingDependencyError: the format's runtime is not installed.
    """
    artifact = Artifact.open(path)
    if artifact.format == "tflite":
        try:
            from onnxport.validate.runtimes.tflite import TfliteRuntime
        except ImportError as error:
            raise _missing("ai-edge-litert", error) from error
        return TfliteRuntime(artifact.path, options)
    if artifact.format == "coreml":
        try:
            return _coreml(artifact.path, options)
        except ImportError as error:
            raise _missing("coremltools", error) from error
    try:
        from onnxport.validate.runtimes.ort import OrtRuntime
    except ImportError as error:
        raise _missing("onnxruntime", error) from error
    return OrtRuntime(artifact.path, options)


def _coreml(path: Path, options: RuntimeOptions) -> Runtime:
    """Core ML itself where it is, unless the user wants the evaluator."""
    if options.runtime == "predict" or (options.runtime == "auto" and sys.platform == "darwin"):
        from onnxport.validate.runtimes.coreml import CoremlRuntime

        return CoremlRuntime(path, options)
    from onnxport.validate.runtimes.mil import MilRuntime

    return MilRuntime(path, options)


def _missing(package: str, error: ImportError) -> MissingDependencyError:
    return MissingDependencyError(
        f"{package} cannot be imported", why=str(error), fix=f"install it: pip install {package}"
    )
