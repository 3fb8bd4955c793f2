"""The runtimes, one module each behind the protocol of base.py. A runtime is imported by `Kind.load` alone."""

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
    """Load the model at `path` to run it in this process.

        with onnxport.load("model.tflite") as model:
            scores = model.run({"image": image})["scores"]

    Raises:
        InputError: the file is missing, unreadable, damaged, of an unknown extension, or refused by its runtime.
        UsageError: the runtime does not run such files.
        MissingDependencyError: the runtime is not installed.
    """
    artifact = Artifact.open(path)
    return registry.find_runtime(artifact.format, options.runtime).load()(artifact.path, options)
