"""TensorFlow and Keras: SavedModels, Keras files, frozen graphs, TFLite files and factories, by tf2onnx."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxport.exporters.framework import Framework
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

_HERE = "onnxport.exporters.tensorflow"

# What a path ends with to the function that loads it; a folder is a SavedModel.
_LOADERS: Mapping[str, str] = {
    ".keras": f"{_HERE}.keras_files:load",
    ".h5": f"{_HERE}.keras_files:load",
    ".hdf5": f"{_HERE}.keras_files:load",
    ".pb": f"{_HERE}.frozen_graphs:load",
    ".tflite": f"{_HERE}.tflite:load",
}


def load(source: Source, params: ExportParams) -> Framework:
    """Load the model in a file or folder.

    Raises:
        InputError: damaged, or not what its name says.
        UsageError: options that do not fit it.
    """
    path = Path(source.name)
    place = f"{_HERE}.saved_models:load" if path.is_dir() else _LOADERS[path.suffix.lower()]
    module, _, function = place.partition(":")
    framework: Framework = getattr(importlib.import_module(module), function)(source, params)
    return framework


def of_object(model: Any, source: Source, params: ExportParams) -> Framework:
    """Load a Keras model or layer, tf.Module or tf.function."""
    from onnxport.exporters.tensorflow import functions, keras_models

    load_object = keras_models.from_model if keras_models.is_keras(model) else functions.of_object
    return load_object(model, source, params)
