"""Between a runtime's own names and axes and the source model's, in which inputs are made and answers compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onnxport.bench.loaders.base import Port
from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.base import check_feeds


class Ports(Protocol):
    """A model's ends; `inputs` and `outputs` have the source's names, dtypes and axes."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def entering(self, feeds: Feeds) -> dict[str, Array]:
        """The arrays by the runtime's keys, as it stores them (UsageError where they do not fit)."""
        ...

    def leaving(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """The runtime's outputs as the source has them."""
        ...


def ports_of(runtime: str, path: Path, inputs: Sequence[Port], outputs: Sequence[Port]) -> Ports:
    """The ends of the model at `path`, of which its runtime told `inputs` and `outputs`."""
    if runtime == "litert":
        return TflitePorts(path, inputs)
    if runtime == "ort":
        from onnxport.runtimes.ort.types_and_messages import spec_of

        return NamedPorts([spec_of(*each) for each in inputs], [spec_of(*each) for each in outputs])
    return NamedPorts([TensorSpec(*each) for each in inputs], [TensorSpec(*each) for each in outputs])


class NamedPorts:
    """A runtime that has the source's names and axes, as ONNX Runtime does."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def entering(self, feeds: Feeds) -> dict[str, Array]:
        """See Ports."""
        fed = {spec.name: _narrowed(feeds[spec.name], spec) for spec in self.inputs if spec.name in feeds}
        check_feeds(self.inputs, fed)
        return fed

    def leaving(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """See Ports."""
        return dict(answers)


class TflitePorts:
    """LiteRT: tensors by number, maybe permuted and in other types, as the note in the file tells."""

    def __init__(self, path: Path, inputs: Sequence[Port]) -> None:
        from onnxport.formats.tflite.ports import read_ends

        self._ends = read_ends(path)
        self._types = {int(key): np.dtype(kind) for key, kind, _ in inputs}
        self.inputs = tuple(_source_order(port.spec, port.permutation) for port, _ in self._ends.inputs)
        self.outputs = tuple(_source_order(port.spec, port.permutation) for port, _ in self._ends.outputs)

    def entering(self, feeds: Feeds) -> dict[str, Array]:
        """See Ports."""
        from onnxport.formats.tflite.ports import stored

        fed = {spec.name: _narrowed(feeds[spec.name], spec) for spec in self.inputs if spec.name in feeds}
        check_feeds(self.inputs, fed)
        return {
            str(index): stored(_permuted(fed[port.name], port.permutation), self._types[index], port)
            for port, index in self._ends.inputs
        }

    def leaving(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """See Ports."""
        from onnxport.formats.tflite.ports import restored

        return {
            port.name: _permuted(restored(answers[str(index)], port), tuple(np.argsort(port.permutation)))
            for port, index in self._ends.outputs
        }


def _narrowed(array: Array, spec: TensorSpec) -> Array:
    """The array in the model's own float type: one with float16 inputs is fed what the others are, rounded."""
    if array.dtype.kind != "f" or array.dtype.name == spec.dtype or not spec.dtype.startswith("float"):
        return array
    with np.errstate(over="ignore"):
        return array.astype(spec.dtype)


def _permuted(array: Array, permutation: Sequence[int]) -> Array:
    return array.transpose(permutation) if len(permutation) else array


def _source_order(spec: TensorSpec, permutation: tuple[int, ...]) -> TensorSpec:
    if len(permutation) != len(spec.shape):
        return spec
    return TensorSpec(
        spec.name, spec.dtype, tuple(spec.shape[permutation.index(axis)] for axis in range(len(permutation)))
    )


def written(arrays: Mapping[str, Array], folder: str) -> dict[str, str]:
    """The arrays as `.npy` files in `folder`: a pipe would have them in the other process twice."""
    files = {}
    for number, (key, array) in enumerate(arrays.items()):
        if array.dtype.name == "bfloat16" or array.dtype.name.startswith("float8"):
            raise UsageError(f"input {key!r} is {array.dtype.name}", why="NumPy has no such arrays to feed")
        files[key] = f"{folder}/{number}.npy"
        np.save(files[key], np.asarray(array, order="C"), allow_pickle=True)
    return files


def read(files: Mapping[str, str]) -> dict[str, Any]:
    """The arrays of `.npy` files of ours."""
    return {key: np.load(file, allow_pickle=True) for key, file in files.items()}
