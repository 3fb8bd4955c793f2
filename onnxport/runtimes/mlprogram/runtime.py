"""The evaluator of ML programs as a Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.base import RunError, UndefinedResultError, check_feeds, check_taps
from onnxport.runtimes.mlprogram.evaluator import Evaluator
from onnxport.runtimes.mlprogram.kernels.registry import Failed, Undefined
from onnxport.runtimes.mlprogram.ports import (
    from_program,
    function_name,
    image_inputs,
    input_types,
    signature,
    state_names,
    to_pixels,
    to_program,
)
from onnxport.runtimes.options import RuntimeOptions

_DEFAULT = RuntimeOptions()
_EVALUATED = "the package was evaluated as Apple documents its operators; Core ML itself runs on macOS only"


class MilRuntime(Closing):
    """An `.mlpackage`, evaluated; in a package of ours, inputs and outputs have the source's names and dtypes.

    Args:
        rounds: see Evaluator.

    Raises:
        InputError: no package, a damaged one, or one with operators that the evaluator does not know.
        UsageError: the package has no function of the name in `options`.
    """

    name = "evaluator of ML programs, as Apple documents them"
    remarks = (_EVALUATED,)  # for the report

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT, *, rounds: bool = True) -> None:
        self._path = path
        self._package = read_package(path)
        name = function_name(self._package, path, options.function)
        self._signature = signature(self._package, path, name)
        self._images = image_inputs(self._package, path, name)
        self.inputs = tuple(port.spec for port in self._signature.inputs)
        self.outputs = tuple(port.spec for port in self._signature.outputs)
        self.taps = frozenset(self._signature.taps)
        self._function = self._package.functions[name]
        self._described = self._package.described(name)
        self._evaluator = Evaluator(self._function, rounds=rounds)
        if missing := self._evaluator.missing():
            raise InputError(
                f"{path.name} holds operators that the evaluator does not know: {', '.join(missing)}",
                fix="validate it on macOS, where Core ML runs it",
            )

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`."""
        check_feeds(self.inputs, feeds)
        check_taps(self.taps, taps, str(self._path))
        self._check_sizes(feeds)
        types = input_types(self._function)
        inputs = {}
        for port in self._signature.inputs:
            array = feeds[port.name]
            if port.key in self._images:
                array = to_pixels(array, *self._images[port.key])
            inputs[port.key] = to_program(array, types[port.key], port)
        states = {key: inputs.pop(key) for key in state_names(self._function) if key in inputs}
        tapped = {name: self._signature.taps[name].key for name in taps}
        try:
            found = self._evaluator.run(inputs, states, keep=tuple(tapped.values())) | states
        except Undefined as error:
            raise UndefinedResultError(
                f"{self._path.name} uses behaviour that Core ML leaves undefined", why=str(error)
            ) from error
        except Failed as error:
            raise RunError(f"{self._path.name} cannot be evaluated", why=str(error)) from error
        outputs = {port.name: from_program(found[port.key], port) for port in self._signature.outputs}
        return outputs | {name: np.asarray(found[key]) for name, key in tapped.items()}

    def _check_sizes(self, feeds: Feeds) -> None:
        """Raise RunError where Core ML would: for sizes outside the package's description."""
        described = {feature.name: feature.type for feature in self._described.input}
        for port in self._signature.inputs:
            shape = np.shape(feeds[port.name])
            if port.key in described and (takes := _other_sizes(described[port.key].multiArrayType, shape)):
                raise RunError(
                    f"{self._path.name}: input {port.name!r} does not take the shape {shape}",
                    why=f"it takes {takes}",
                )

    def close(self) -> None:
        del self._evaluator


def _other_sizes(array: Any, shape: tuple[int, ...]) -> str:
    """Return the sizes that a multi-array takes; empty if `shape` is among them."""
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
