"""ONNX -> .tflite, the parent's side: passes the prepared model to a compiler in a child process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.converters.compiler import CompilerProcess
from onnxport.converters.params import TfliteParams
from onnxport.converters.result import Compiled
from onnxport.converters.tflite.metadata.labels import check_normalization, read_label_files
from onnxport.converters.tflite.settings import Settings
from onnxport.core.child_process import COMPILERS, ONE_THREAD, Child, borrow, give_back
from onnxport.core.errors import CannotConvertError
from onnxport.formats.manifest import Manifest

if TYPE_CHECKING:
    from onnxport.formats.model import Model  # its import would delay the start of the child


class TfliteConverter(CompilerProcess):
    """Google's compiler."""

    def __init__(self) -> None:
        super().__init__(
            partial(
                borrow,
                "onnxport.converters.tflite.worker:Worker",
                purpose="the LiteRT compiler",
                environment=ONE_THREAD,
                offline=True,
                # The last one's schema takes long to import, and the proof reads the artefact with it, too.
                shares=("numpy", "onnx", "onnxport.formats.model", "onnxport.formats.graph.tflite"),
            )
        )

    def convert(
        self,
        model: Model,
        output: Path,
        params: TfliteParams,
        manifest: Manifest,
        source: Model | None = None,
        *,
        tries: bool = True,
    ) -> Compiled:
        """Write the prepared `model` to `output`.

        Args:
            source: the model before preparation.
            tries: whether to run the artefact once; needless where a proof follows.

        Raises:
            CannotConvertError: nodes without an equivalent in TFLite, all of them listed.
            UsageError, InputError: a precision, labels or a normalization that do not fit, or unreadable files.
            MachineError: the compiler crashed or hung, or the disk is full.
        """
        # Imported late, as the model: the child starts first.
        from onnxport.converters.open_inputs import explain_refusals
        from onnxport.converters.precisions import check_precision
        from onnxport.converters.tflite.storage.source_weights import find_stored_weights

        check_precision(model, params.precision, "int8-dynamic")
        check_normalization(model.inputs, params.normalization)
        labels = read_label_files(model.outputs, params.labels)
        stored = find_stored_weights(model if source is None else source, model)
        prepared = output.with_name("prepared.onnx")  # in the run's own staging folder
        model.hand_over(prepared)  # the child maps the weights instead of parsing them
        try:
            with self._child.bounded(model.weight_bytes, COMPILERS):
                compiled: Compiled = self._child.call(
                    "compile", prepared, output, Settings.of(params), manifest, stored, labels, tries
                )
        except CannotConvertError as error:
            raise explain_refusals(error, model, "TFLite") from error
        return compiled

    def _end(self, child: Child) -> None:
        give_back(child, once_in_a_job=True)
