"""ONNX -> .tflite: the parent's side, which hands the prepared model to a compiler in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.converters.params import TfliteParams
from onnxport.converters.tflite.metadata.labels import check_normalization, label_files
from onnxport.converters.tflite.result import Compiled
from onnxport.core.child_process import borrowed, give_back
from onnxport.core.errors import CannotConvertError
from onnxport.core.resources import Closing
from onnxport.formats.manifest import Manifest

if TYPE_CHECKING:
    from onnxport.formats.model import Model  # its import would delay the start of the child


class TfliteConverter(Closing):
    """The compiler, started at once so that it gets ready while the parent prepares the model."""

    def __init__(self) -> None:
        self._child = borrowed("onnxport.converters.tflite.worker:Worker", purpose="the LiteRT compiler")

    def native_ops(self) -> frozenset[str]:
        """The ONNX operators that TFLite holds; `prepare` decomposes others where ONNX defines how."""
        ops: frozenset[str] = self._child.call("native_ops")
        return ops

    def convert(
        self,
        model: Model,
        output: Path,
        params: TfliteParams,
        manifest: Manifest,
        source: Model | None = None,
    ) -> Compiled:
        """Writes the prepared `model` to `output`; `source` is what it was prepared from.

        The prepared model passes to the child as a file beside `output`, in the run's own staging folder.

        Raises:
            CannotConvertError: nodes without an equivalent in TFLite, all of them listed.
            UsageError, InputError: a precision, labels or a normalization that do not fit the model, or cannot be read.
            MachineError: the compiler crashed or hung, or the disk is full.
        """
        # As the model's, their imports are for later.
        from onnxport.converters.open_inputs import with_shapes
        from onnxport.converters.precisions import check_precision
        from onnxport.converters.tflite.storage.source_weights import stored_weights

        check_precision(model, params.precision, "int8-dynamic")
        check_normalization(model.inputs, params.normalization)
        labels = label_files(model.outputs, params.labels)
        stored = stored_weights(model if source is None else source, model)
        handed_over = output.with_name("prepared.onnx")
        model.hand_over(handed_over)  # the child maps the weights instead of parsing them
        try:
            compiled: Compiled = self._child.call(
                "compile", handed_over, output, params, manifest, stored, labels
            )
        except CannotConvertError as error:
            named = f"{model.path} cannot be converted to TFLite, {error.what}"
            refusals = with_shapes(error.refusals, model)
            raise CannotConvertError(named, why=error.why, fix=error.fix, refusals=refusals) from error
        return compiled

    def close(self) -> None:
        give_back(self._child)
