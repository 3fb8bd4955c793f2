"""Translation between a runtime's names and axes and the source model's, which inputs and comparisons use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnxport.bench.loaders.base import Port
from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import check_feeds


class Ports(Protocol):
    """A model's inputs and outputs, in the source's names, dtypes and axes."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def to_runtime(self, feeds: Feeds) -> dict[str, Array]:
        """Return the arrays by the runtime's keys, as it stores them (UsageError where they do not fit)."""

    def to_source(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the runtime's outputs as the source has them."""


def ports_of(runtime: str, path: Path, inputs: Sequence[Port], outputs: Sequence[Port]) -> Ports:
    """Return the ports of the model at `path`, for which its runtime reports `inputs` and `outputs`."""
    if runtime == "litert":
        return TflitePorts(path, inputs)
    if runtime == "ort":
        from onnxport.runtimes.ort.parsing import spec_of

        return NamedPorts([spec_of(*each) for each in inputs], [spec_of(*each) for each in outputs])
    return NamedPorts([TensorSpec(*each) for each in inputs], [TensorSpec(*each) for each in outputs])


def ports_in_file(artifact: Artifact) -> Ports:
    """Return the ports of a model from its file, without a runtime (InputError)."""
    if artifact.format == "tflite":
        from onnxport.formats.tflite.ports import read_signature

        found = read_signature(artifact.path, noted=False).inputs
        return TflitePorts(artifact.path, [(str(index), port.dtype, port.shape) for port, index in found])
    if artifact.format == "ort":
        from onnxport.formats.ort_model import load_ort

        model = load_ort(artifact.path)
    else:
        model = Model.load(artifact.path)
    return NamedPorts(model.inputs, model.outputs)


class NamedPorts:
    """Ports of a runtime that uses the source's names and axes, such as ONNX Runtime."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def to_runtime(self, feeds: Feeds) -> dict[str, Array]:
        fed = {spec.name: _cast_floats(feeds[spec.name], spec) for spec in self.inputs if spec.name in feeds}
        check_feeds(self.inputs, fed)
        return fed

    def to_source(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        return dict(outputs)


class TflitePorts:
    """Ports of LiteRT: tensors by number, perhaps permuted and in other types, as the file's metadata says."""

    def __init__(self, path: Path, inputs: Sequence[Port]) -> None:
        from onnxport.formats.tflite.ports import read_signature

        self._ends = read_signature(path)
        self._types = {int(key): np.dtype(kind) for key, kind, _ in inputs}
        self.inputs = tuple(_source_order(port.spec, port.permutation) for port, _ in self._ends.inputs)
        self.outputs = tuple(_source_order(port.spec, port.permutation) for port, _ in self._ends.outputs)

    def to_runtime(self, feeds: Feeds) -> dict[str, Array]:
        from onnxport.formats.tflite.ports import to_tflite

        fed = {spec.name: _cast_floats(feeds[spec.name], spec) for spec in self.inputs if spec.name in feeds}
        check_feeds(self.inputs, fed)
        return {
            str(index): to_tflite(_permute(fed[port.name], port.permutation), self._types[index], port)
            for port, index in self._ends.inputs
        }

    def to_source(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        from onnxport.formats.tflite.ports import from_tflite

        return {
            port.name: _permute(from_tflite(outputs[str(index)], port), tuple(np.argsort(port.permutation)))
            for port, index in self._ends.outputs
        }


def _cast_floats(array: Array, spec: TensorSpec) -> Array:
    """Return the array in the model's float type, so that a float16 model gets the same inputs, rounded."""
    if array.dtype.kind != "f" or array.dtype.name == spec.dtype or not spec.dtype.startswith("float"):
        return array
    with np.errstate(over="ignore"):
        return array.astype(spec.dtype)


def _permute(array: Array, permutation: Sequence[int]) -> Array:
    return array.transpose(permutation) if len(permutation) else array


def _source_order(spec: TensorSpec, permutation: tuple[int, ...]) -> TensorSpec:
    if len(permutation) != len(spec.shape):
        return spec
    return TensorSpec(
        spec.name, spec.dtype, tuple(spec.shape[permutation.index(axis)] for axis in range(len(permutation)))
    )


def save_arrays(arrays: Mapping[str, Array], folder: str) -> dict[str, str]:
    """Save the arrays as `.npy` files in `folder`: a pipe would copy them in the other process."""
    files = {}
    for number, (key, array) in enumerate(arrays.items()):
        if array.dtype.name == "bfloat16" or array.dtype.name.startswith("float8"):
            raise UsageError(f"input {key!r} is {array.dtype.name}", why="NumPy has no such arrays to feed")
        files[key] = f"{folder}/{number}.npy"
        np.save(files[key], np.asarray(array, order="C"), allow_pickle=True)
    return files


def load_arrays(files: Mapping[str, str]) -> dict[str, Any]:
    """Load arrays from `.npy` files of `save_arrays`."""
    return {key: np.load(file, allow_pickle=True) for key, file in files.items()}
