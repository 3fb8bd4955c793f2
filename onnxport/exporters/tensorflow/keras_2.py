"""Keras 2 files in Keras 3: removed arguments without effect are dropped from a copy."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Argument of a layer in Keras 2 that Keras 3 refuses: the value at which it does nothing, and the layers, by a part of
# their name.
_GONE: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "time_major": (False, ("LSTM", "GRU", "RNN")),
    "groups": (1, ("Depthwise", "Separable", "Transpose")),
}


def class_objects(config: Any) -> Iterator[Mapping[str, Any]]:
    """Return every object in a configuration that names a class."""
    if isinstance(config, dict):
        if isinstance(config.get("class_name"), str):
            yield config
        for value in config.values():
            yield from class_objects(value)
    elif isinstance(config, list):
        for value in config:
            yield from class_objects(value)


def is_of_keras_2(path: Path) -> bool:
    """Return whether an older Keras wrote the file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            told = json.loads(archive.read("metadata.json")).get("keras_version", "")
    else:
        import h5py

        with h5py.File(path, "r") as file:
            told = file.attrs.get("keras_version", "")
    text = told.decode() if isinstance(told, bytes) else str(told)
    return text.startswith(("1.", "2."))


@contextlib.contextmanager
def compatible_file(path: Path, config: Any) -> Iterator[Path]:
    """Yield the file, or a temporary copy whose configuration (`config`, changed) lacks the removed arguments."""
    if zipfile.is_zipfile(path) or not _drop_removed(config):
        yield path
        return
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        with h5py.File(copy, "r+") as file:
            file.attrs["model_config"] = json.dumps(config)
        yield copy


def _drop_removed(config: Any) -> bool:
    """Drop the arguments; return whether there were any."""
    found = False
    for each in class_objects(config):
        arguments = each.get("config")
        for name, (idle, layers) in _GONE.items():
            is_of = any(layer in each["class_name"] for layer in layers)
            if is_of and isinstance(arguments, dict) and arguments.get(name) == idle:
                del arguments[name]
                found = True
    return found
