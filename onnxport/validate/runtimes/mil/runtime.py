"""The evaluator behind the Runtime contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.artifact import TensorSpec
from onnxport.closing import Closing
from onnxport.errors import UsageError
from onnxport.manifest import KEY, Manifest, Port, Tap
from onnxport.validate.runtimes.base import Array, Feeds, RunError, check_feeds, check_taps
from onnxport.validate.runtimes.mil.evaluator import Evaluator
from onnxport.validate.runtimes.mil.program import Package, read_package
from onnxport.validate.runtimes.mil.registry import Undefined
from onnxport.validate.runtimes.options import RuntimeOptions

_DEFAULT = RuntimeOptions()
_MAIN = "main"


class MilRuntime(Closing):
    """An `.mlpackage` evaluated here.

    `inputs` and `outputs` carry the source's names and dtypes where the package is one of ours.

    Args:
        path: the package's folder.
        options: of no consequence yet.

    Raises:
        InputError: no package, or a damaged one.
    """

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT) -> None:
        self._path = path
        self._package = read_package(path)
        self._function = self._package.functions[_MAIN]
        self._evaluator = Evaluator(self._function)
        self._inputs, self._outputs, self._taps = _ends(self._package)

    @property
    def name(self) -> str:
        return "evaluator of ML programs (Core ML itself runs on macOS only)"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(port.spec for port in self._inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(port.spec for port in self._outputs)

    @property
    def taps(self) -> frozenset[str]:
        return frozenset(self._taps)

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        self._check_sizes(feeds)
        types = dict(self._function.inputs)
        given = {port.key: _entering(feeds[port.name], types[port.key].dtype, port) for port in self._inputs}
        keep = [self._taps[name].key for name in taps]
        if missing := self._evaluator.missing():
            raise RunError(f"{self._path} holds operators that the evaluator does not know: {missing}")
        try:
            found = self._evaluator.run(given, keep=keep)
        except Undefined as error:
            raise RunError(f"{self._path} computes what Core ML does not define", why=str(error)) from error
        outputs = {port.name: _leaving(found[port.key], port) for port in self._outputs}
        return outputs | {name: np.asarray(found[self._taps[name].key]) for name in taps}

    def _check_sizes(self, feeds: Feeds) -> None:
        """Core ML refuses an input beyond the sizes in the package's description."""
        described = {feature.name: feature.type for feature in self._package.description.input}
        for port in self._inputs:
            shape = np.shape(feeds[port.name])
            if port.key in described and (takes := _unmet(described[port.key].multiArrayType, shape)):
                raise RunError(
                    f"{self._path}: input {port.name!r} does not take the shape {shape}",
                    why=f"it takes {takes}",
                )

    def close(self) -> None:
        del self._evaluator


def _unmet(array: Any, shape: tuple[int, ...]) -> str:
    """The sizes that a multi-array takes; empty if `shape` is within them."""
    ranges = array.shapeRange.sizeRanges
    if ranges:
        outside = [
            size < r.lowerBound or 0 < r.upperBound < size for size, r in zip(shape, ranges, strict=False)
        ]
        sizes = [
            f"{r.lowerBound}..{r.upperBound}" if r.lowerBound != r.upperBound else str(r.lowerBound)
            for r in ranges
        ]
        return ",".join(sizes) if any(outside) else ""
    choices = [tuple(each.shape) for each in array.enumeratedShapes.shapes]
    return " or ".join(map(str, choices)) if choices and shape not in choices else ""


def _entering(array: Array, dtype: str, port: Port) -> Array:
    """A feed as the program takes it: integers in 32 bits, a scalar with one axis."""
    wanted = np.dtype(dtype)
    if wanted.kind in "iu" and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise UsageError(
                f"input {port.name!r} has values from {array.min()} to {array.max()}",
                why=f"Core ML holds it as {wanted.name}",
                fix=f"keep it within {limits.min} to {limits.max}",
            )
    entered = array.astype(wanted, order="C")
    return entered.reshape(1) if array.ndim == 0 else entered


def _leaving(value: Any, port: Port) -> Array:
    array = np.asarray(value)
    if not port.shape and array.shape == (1,):
        array = array.reshape(())
    return array.astype(port.dtype, copy=False)


def _ends(package: Package) -> tuple[tuple[Port, ...], tuple[Port, ...], dict[str, Tap]]:
    """Inputs, outputs and intermediate values, by our manifest or by the package's own description."""
    function = package.functions[_MAIN]
    note = package.description.metadata.userDefined.get(KEY)
    if note:
        manifest = Manifest.from_json(note)
        return manifest.inputs, manifest.outputs, dict(manifest.taps)
    declared = {name: type_ for each in function.block.operations for name, type_ in each.outputs}
    inputs = tuple(
        Port(name, name, type_.dtype, type_.shape or ())
        for name, type_ in function.inputs
        if type_.dtype != "state"
    )
    outputs = tuple(
        Port(name, name, declared[name].dtype, declared[name].shape or ()) for name in function.block.outputs
    )
    return inputs, outputs, {}
