"""ONNX -> .mlpackage: the parent's side, which hands the prepared model to coremltools in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.closing import Closing
from onnxport.converters.coreml.compiled import Compiled
from onnxport.converters.params import CoremlParams
from onnxport.errors import CannotConvertError
from onnxport.isolation import Child
from onnxport.manifest import Manifest

if TYPE_CHECKING:
    from onnxport.model import Model  # its import would delay the start of the child


class CoremlConverter(Closing):
    """The converter, started at once so that it gets ready while the parent prepares the model."""

    def __init__(self) -> None:
        self._child = Child("onnxport.converters.coreml.worker:Worker", purpose="the Core ML converter")

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that MIL holds; `prepare` decomposes others where ONNX defines how."""
        ops: frozenset[str] = self._child.call("native_ops")
        return ops

    def convert(self, model: Model, output: Path, params: CoremlParams, manifest: Manifest) -> Compiled:
        """Writes the prepared `model` to the package `output`.

        Raises:
            CannotConvertError: nodes without an equivalent in Core ML, all of them listed.
            MachineError: the converter crashed or hung, or the disk is full.
        """
        handed_over = output.with_name("prepared.onnx")
        model.hand_over(handed_over)  # the child maps the weights instead of parsing them
        try:
            compiled: Compiled = self._child.call("compile", handed_over, output, params, manifest)
        except CannotConvertError as error:
            named = f"{model.path} cannot be converted to Core ML, {error.what}"
            raise CannotConvertError(named, why=error.why, fix=error.fix, refusals=error.refusals) from error
        return compiled

    def close(self) -> None:
        self._child.close()
