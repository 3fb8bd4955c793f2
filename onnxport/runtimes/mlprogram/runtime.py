"""The evaluator behind the Runtime contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.mlpackage.reader import read_package
from onnxport.runtimes.base import RunError, check_feeds, check_taps
from onnxport.runtimes.mlprogram.evaluator import Evaluator
from onnxport.runtimes.mlprogram.ports import (
    chosen,
    ends,
    entering,
    fed_types,
    held_states,
    leaving,
    pixels,
    to_pixels,
)
from onnxport.runtimes.mlprogram.registry import Failed, Undefined
from onnxport.runtimes.options import RuntimeOptions

_DEFAULT = RuntimeOptions()
_EVALUATED = (
    "the package was evaluated as Apple documents its operators, not run by Core ML: that is done on macOS"
)


class MilRuntime(Closing):
    """An `.mlpackage` evaluated here.

    `inputs` and `outputs` carry the source's names and dtypes where the package is one of ours.

    Args:
        path: the package's folder.
        options: `function`, which of its functions answers.

    Raises:
        InputError: no package, a damaged one, or one with operators that the evaluator does not know.
        UsageError: it has no function of the wanted name.
    """

    def __init__(self, path: Path, options: RuntimeOptions = _DEFAULT) -> None:
        self._path = path
        self._package = read_package(path)
        name = chosen(self._package, path, options.function)
        found = ends(self._package, path, name)
        self._pixels = pixels(self._package, path, name)
        self._inputs, self._outputs, self._taps = found.inputs, found.outputs, found.taps
        self._function = self._package.functions[name]
        self._described = self._package.described(name)
        self._evaluator = Evaluator(self._function)
        if missing := self._evaluator.missing():
            raise InputError(
                f"{path.name} holds operators that the evaluator does not know: {', '.join(missing)}",
                fix="have it judged on macOS, where Core ML runs it",
            )

    @property
    def name(self) -> str:
        return "evaluator of ML programs, as Apple documents them"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the report has to say of every answer from here."""
        return (_EVALUATED,)

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
        shown = {port.name: self._pixels[port.key] for port in self._inputs if port.key in self._pixels}
        feeds = {
            name: to_pixels(each, *shown[name]) if name in shown else each for name, each in feeds.items()
        }
        types, held = fed_types(self._function), held_states(self._function)
        given = {port.key: entering(feeds[port.name], types[port.key], port) for port in self._inputs}
        states = {key: given.pop(key) for key in held if key in given}
        keep = [self._taps[name].key for name in taps]
        try:
            found = self._evaluator.run(given, states, keep=keep) | states
        except Undefined as error:
            raise RunError(
                f"{self._path.name} computes what Core ML does not define", why=str(error)
            ) from error
        except Failed as error:
            raise RunError(f"{self._path.name} cannot be evaluated", why=str(error)) from error
        outputs = {port.name: leaving(found[port.key], port) for port in self._outputs}
        return outputs | {name: np.asarray(found[self._taps[name].key]) for name in taps}

    def _check_sizes(self, feeds: Feeds) -> None:
        """Core ML refuses an input beyond the sizes in the package's description."""
        described = {feature.name: feature.type for feature in self._described.input}
        for port in self._inputs:
            shape = np.shape(feeds[port.name])
            if port.key in described and (takes := _unmet(described[port.key].multiArrayType, shape)):
                raise RunError(
                    f"{self._path.name}: input {port.name!r} does not take the shape {shape}",
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
