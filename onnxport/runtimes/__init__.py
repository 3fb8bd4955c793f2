"""The runtimes that answer for artefacts, one module each; a module imports its library, and only `load` the module."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onnxport.formats.artifact import Artifact
from onnxport.runtimes import registry
from onnxport.runtimes.options import RuntimeOptions

if TYPE_CHECKING:
    from onnxport.runtimes.base import Runtime

_DEFAULT = RuntimeOptions()


def load(path: str | os.PathLike[str], options: RuntimeOptions = _DEFAULT) -> Runtime:
    """The model at `path`, ready to run in this process.

        with onnxport.load("model.tflite") as model:
            scores = model.run({"image": image})["scores"]

    Raises:
        InputError: missing, unreadable, damaged, of an unknown extension, or refused by its runtime.
        UsageError: a runtime that does not run such files.
        MissingDependencyError: the runtime is not installed.
    """
    artifact = Artifact.open(path)
    return registry.find_runtime(artifact.format, options.runtime).load()(artifact.path, options)
