"""The contract of a framework's model in its own process: it exports there and answers there.

A package of this room has `load(source, params) -> Framework` for files (sources.LOADERS), and
`of_object(object, source, params) -> Framework` for what a factory or a pickle returns (objects.OF_OBJECTS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.artifact import TensorSpec


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path  # the `.onnx` file; its data files, if any, lie beside it
    notes: tuple[str, ...] = ()  # sentences for the user
    # Figures for the report: "exporter" is its name and version.
    facts: Mapping[str, Any] = field(default_factory=dict)


class Framework(Protocol):
    """A model, loaded and in inference mode.

    It may have `domains: Mapping[str, Domain]` where it knows more of its inputs than the graph shows (thresholds, NaN
    for missing). A model of tables has `features: tuple[str, ...]`, the column names, () where there are none.
    """

    @property
    def kind(self) -> str:
        """A key of sources.KINDS."""

    @property
    def name(self) -> str:
        """The framework, with its version, for the report: "PyTorch 2.13.0, eager, CPU"."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the ONNX file's inputs; known before the export."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def export(self, output: Path, opset: int | None) -> Exported:
        """Write the ONNX model at `opset` or the nearest older one; CannotConvertError if the exporter refuses it."""

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        """Return the model's answers under the names and dtypes of `outputs`; RunError if it refuses the inputs.

        With `other_kernels` it computes otherwise where it can: the difference is the framework's own noise.
        """

    @property
    def has_other_kernels(self) -> bool: ...
