"""The child's side of an isolated runtime; it imports no library but the runtime's own."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.runtimes.options import RuntimeOptions

if TYPE_CHECKING:
    from onnxport.core.arrays import Array, Feeds
    from onnxport.formats.artifact import TensorSpec
    from onnxport.runtimes.base import Runtime


@dataclass(frozen=True)
class Description:
    """The child's description of its model."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    permutations: Mapping[str, tuple[int, ...]]
    remarks: tuple[str, ...] = ()


class Host:
    """The object that the child serves: the loaded models, by path and options."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[Path, RuntimeOptions], Runtime] = {}

    def load(self, module: str) -> None:
        """Import a runtime's module before its first model comes; what fails there fails at its use, too."""
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)

    def open(self, path: Path, options: RuntimeOptions) -> Description:
        from onnxport.runtimes import load

        runtime = self._loaded[path, options] = load(path, options)
        permutations = getattr(runtime, "permutations", {})
        remarks = getattr(runtime, "remarks", ())
        return Description(runtime.name, runtime.inputs, runtime.outputs, permutations, remarks)

    def taps(self, path: Path, options: RuntimeOptions) -> frozenset[str]:
        return self._loaded[path, options].taps

    def run(self, path: Path, options: RuntimeOptions, feeds: Feeds, taps: Sequence[str]) -> dict[str, Array]:
        return self._loaded[path, options].run(feeds, taps=taps)
