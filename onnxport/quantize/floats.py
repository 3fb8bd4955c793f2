"""FP16 and BF16, by optimizers/float16 on the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxport.quantize.contract import QuantizationInputs, Quantized
from onnxport.quantize.eligibility import check_float
from onnxport.quantize.params import QuantizeParams

if TYPE_CHECKING:
    from onnxport.core.arrays import Feeds
    from onnxport.formats.model import Model

# How many samples values are measured on.
_MEASURED = 16


def to_float16(model: Model, params: QuantizeParams, setting: QuantizationInputs) -> Quantized:
    """Convert `model` to float16, except what exceeds it on the samples: calibration's, the proof's, or generated.

    Raises:
        CannotConvertError: nothing of the model can be float16, or it is quantized.
        InputError: a sample that cannot be read.
    """
    from onnxport.optimizers.float16.conversion import to_float16

    check_float(model)
    with setting.watch.phase("measure and round"):
        done = to_float16(model, setting.folder, _samples(model, setting), io=params.io == "fp16")
    return Quantized(done.model, done.notes, done.facts)


def to_bfloat16(model: Model, params: QuantizeParams, setting: QuantizationInputs) -> Quantized:
    """Store the weights of `model` in bfloat16 (CannotConvertError if it has none); arithmetic stays float32."""
    from onnxport.optimizers.bfloat16 import to_bfloat16

    check_float(model)
    with setting.watch.phase("round"):
        done = to_bfloat16(model)
    return Quantized(done.model, done.notes, done.facts)


def _samples(model: Model, setting: QuantizationInputs) -> Sequence[Feeds]:
    files = setting.calibration
    if not files and setting.validation is not None and setting.validation.inputs is not None:
        from onnxport.samples.preprocessing import preprocessing
        from onnxport.samples.readers import find_samples
        from onnxport.samples.states import state_inputs

        folder = setting.validation.inputs
        settings = preprocessing(setting.validation.preprocess, folder)
        states = state_inputs(model, setting.validation.state)
        files = find_samples(folder, model.inputs, _MEASURED, settings=settings, optional=states)
    return [dict(file.load().feeds) for file in files[:_MEASURED]]
