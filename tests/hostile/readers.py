"""Readers that no command reaches without running a model: what they raise is shown as a command shows it."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

from onnxport.formats.artifact import TensorSpec


def samples(folder: str, *inputs: str) -> None:
    """Find and load the inputs in `folder` for a model with `inputs`, each NAME=DTYPE:DIM,DIM."""
    from onnxport.samples.readers import find_samples

    specs = []
    for text in inputs:
        name, _, rest = text.partition("=")
        dtype, _, dims = rest.partition(":")
        shape = tuple(int(dim) if dim.isdigit() else dim for dim in dims.split(",") if dim)
        specs.append(TensorSpec(name, dtype, shape))
    for file in find_samples(Path(folder), specs, 16):
        file.load()


def preprocessing(folder: str) -> None:
    """Read the settings beside samples."""
    from onnxport.samples.preprocessing import preprocessing

    preprocessing({}, Path(folder))


def imports(*names: str) -> None:
    """Import modules: a fork may not use what has threads already, as a framework after its first model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            importlib.import_module(name)


def framework(path: str, *options: str) -> None:
    """Load a framework's model as its child process does, with `options` of the export, each NAME=VALUE."""
    from onnxport.exporters.params import ExportParams
    from onnxport.exporters.process import Host
    from onnxport.exporters.sources import Source

    given = dict(option.split("=", 1) for option in options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Host().open(Source.of(path), ExportParams.model_validate(given))


def weights(path: str) -> None:
    """Read a state dict as its child process does."""
    from onnxport.exporters.pytorch.weights import read_tensors

    read_tensors(Path(path))


def lock(path: str) -> None:
    """Parse a lock."""
    from onnxport.pipelines.lock.file import Lock

    Lock.read(Path(path))
