"""ONNX -> .mlpackage, the parent's side: passes the prepared model to coremltools in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.converters.compiler import CompilerProcess
from onnxport.converters.params import QUANTIZED, CoremlParams
from onnxport.converters.result import Compiled
from onnxport.core.arrays import Feeds
from onnxport.core.child_process import COMPILERS, Child
from onnxport.core.errors import CannotConvertError
from onnxport.formats.manifest import MAIN, Manifest

if TYPE_CHECKING:
    from onnxport.formats.model import Model  # its import would delay the start of the child


class CoremlConverter(CompilerProcess):
    """coremltools' converter."""

    def __init__(self) -> None:
        super().__init__(
            partial(
                Child,
                "onnxport.converters.coreml.worker:Worker",
                purpose="the Core ML converter",
                offline=True,
            )
        )

    def lower(
        self,
        model: Model,
        folder: Path,
        params: CoremlParams,
        manifest: Manifest,
        samples: Sequence[Feeds] = (),
        function: str = MAIN,
    ) -> tuple[str, ...]:
        """Lower the prepared `model` to a function of the package; return notes for the report.

        Args:
            folder: where to write the file that the converter reads.
            samples: the user's inputs, on which a float16 conversion measures peaks; generated ones if empty.

        Raises:
            CannotConvertError: nodes without an equivalent in Core ML, all of them listed.
            UsageError: a precision that the model does not have.
            MachineError: the converter crashed or hung.
        """
        # Imported late: the child starts first.
        from onnxport.converters.open_inputs import explain_refusals
        from onnxport.converters.precisions import check_precision

        if params.precision in QUANTIZED:
            check_precision(model, params.precision)
        handed_over = folder / f"prepared.{function}.onnx"
        model.hand_over(handed_over)  # the child maps the weights instead of parsing them
        try:
            islands, notes = self._islands(model, handed_over, params, samples)
            with self._child.bounded(model.weight_bytes, COMPILERS):
                self._child.call("lower", handed_over, params, manifest, islands, function)
        except CannotConvertError as error:
            raise explain_refusals(error, model, "Core ML") from error
        return notes

    def write(self, output: Path, params: CoremlParams) -> Compiled:
        """Write the lowered functions to the package `output`.

        Raises:
            MachineError: the converter crashed or hung, or the disk is full.
        """
        compiled: Compiled = self._child.call("write", output, params)
        return compiled

    def _islands(
        self, model: Model, handed_over: Path, params: CoremlParams, samples: Sequence[Feeds]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the values that a float16 program computes in float32, and notes on them.

        Runtimes compute a float16 source in float32 on a CPU, so that it may hold values that float16 does not.
        """
        dtypes = {value.dtype and value.dtype.name for node in model.graph for value in node.outputs}
        is_half = params.precision is None and "FLOAT16" in dtypes
        if params.precision not in ("fp16", "mixed") and not is_half:
            return (), ()
        from onnxport.optimizers.float16.islands import island_notes, islands
        from onnxport.optimizers.float16.magnitudes import measure_in_subprocess

        measured = measure_in_subprocess(handed_over, params.shape, samples)
        found = islands(model.graph, measured.peaks, mixed=params.precision == "mixed")
        return found, island_notes(model.graph, found, measured)
