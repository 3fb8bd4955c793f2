"""The content of a model file, and what about it may surprise; a module per format."""

from __future__ import annotations

import importlib
import os
from typing import Any

from onnxport.formats.artifact import Artifact
from onnxport.inspection.report import Inspection, list_dynamic, own_manifest

__all__ = ["Inspection", "inspect_model"]


def inspect_model(path: str | os.PathLike[str]) -> Inspection:
    """Read the model at `path` without running it.

    Raises:
        InputError: a file that is missing, unreadable, damaged or of an unknown extension.
        MissingDependencyError: the library that reads this format is not installed.
    """
    artifact = Artifact.open(path)
    # A reader is named for its format; each imports its own libraries.
    reader = importlib.import_module(f"onnxport.inspection.{artifact.format}")
    found: dict[str, Any] = reader.inspect(artifact)
    artifact = found.pop("artifact", artifact)  # with its data files
    return Inspection(
        path=str(artifact.path),
        format=artifact.format,
        size=artifact.size,
        files=artifact.names,
        dynamic=list_dynamic(found["inputs"]),
        manifest=own_manifest(found.pop("manifest")),
        **found,
    )
