"""ONNX -> .mlpackage: the parent's side, which hands the prepared model to coremltools in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.converters.coreml.result import Compiled
from onnxport.converters.params import QUANTIZED, CoremlParams
from onnxport.core.arrays import Feeds
from onnxport.core.child_process import Child
from onnxport.core.errors import CannotConvertError
from onnxport.core.resources import Closing
from onnxport.formats.manifest import MAIN, Manifest

if TYPE_CHECKING:
    from onnxport.formats.model import Model  # its import would delay the start of the child


class CoremlConverter(Closing):
    """The converter, started at once so that it gets ready while the parent prepares the model."""

    def __init__(self) -> None:
        self._child = Child("onnxport.converters.coreml.worker:Worker", purpose="the Core ML converter")

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that MIL holds; `prepare` decomposes others where ONNX defines how."""
        ops: frozenset[str] = self._child.call("native_ops")
        return ops

    def lower(
        self,
        model: Model,
        folder: Path,
        params: CoremlParams,
        manifest: Manifest,
        samples: Sequence[Feeds] = (),
        function: str = MAIN,
    ) -> tuple[str, ...]:
        """Makes the prepared `model` a function of the package to be written; gives sentences for the report.

        Args:
            folder: where to put what the converter reads.
            samples: inputs of the user's, on which a float16 conversion measures how far values go; generated ones
                unless given.

        Raises:
            CannotConvertError: nodes without an equivalent in Core ML, all of them listed.
            UsageError: a precision that the model does not have.
            MachineError: the converter crashed or hung.
        """
        # Their imports are for later.
        from onnxport.converters.open_inputs import with_shapes
        from onnxport.converters.precisions import check_precision

        if params.precision in QUANTIZED:
            check_precision(model, params.precision)
        handed_over = folder / f"prepared.{function}.onnx"
        model.hand_over(handed_over)  # the child maps the weights instead of parsing them
        try:
            islands, notes = self._islands(model, handed_over, params, samples)
            self._child.call("lower", handed_over, params, manifest, islands, function)
        except CannotConvertError as error:
            named = f"{model.path} cannot be converted to Core ML, {error.what}"
            refusals = with_shapes(error.refusals, model)
            raise CannotConvertError(named, why=error.why, fix=error.fix, refusals=refusals) from error
        return notes

    def write(self, output: Path, params: CoremlParams) -> Compiled:
        """Writes what was lowered to the package `output`.

        Raises:
            MachineError: the converter crashed or hung, or the disk is full.
        """
        compiled: Compiled = self._child.call("write", output, params)
        return compiled

    def _islands(
        self, model: Model, handed_over: Path, params: CoremlParams, samples: Sequence[Feeds]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The values that a float16 program computes in float32, and what the report says of them."""
        if params.precision not in ("fp16", "mixed"):
            return (), ()
        from onnxport.optimizers.float16.islands import islands, said
        from onnxport.optimizers.float16.magnitudes import measured_apart

        measured = measured_apart(handed_over, params.shape, samples)
        found = islands(model.graph, measured.peaks, mixed=params.precision == "mixed")
        return found, said(model.graph, found, measured)

    def close(self) -> None:
        self._child.close()
