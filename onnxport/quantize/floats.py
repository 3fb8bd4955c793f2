"""FP16 and BF16: what optimizers/float16 makes of a model, measured on the samples there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxport.errors import UsageError
from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.setting import Quantized, Setting

if TYPE_CHECKING:
    from onnxport.model import Model
    from onnxport.optimizers.float16.preflight import Feeds

# How many samples values are measured on.
_MEASURED = 16


def to_float16(model: Model, params: QuantizeParams, setting: Setting) -> Quantized:
    """`model` in float16, but for what the samples say that float16 does not hold.

    They are those to calibrate on, else those to judge on, else generated ones.

    Raises:
        CannotConvertError: nothing of the model can be float16.
        InputError: a sample that cannot be read.
    """
    from onnxport.optimizers.float16.conversion import to_float16

    with setting.watch.phase("measure and convert"):
        done = to_float16(model, setting.folder, _samples(model, setting), io=params.io == "fp16")
    return Quantized(done.model, done.notes, done.facts)


def to_bfloat16(model: Model, params: QuantizeParams, setting: Setting) -> Quantized:
    """`model` with its weights in bfloat16, computed in float32.

    Raises:
        CannotConvertError: it has no weights to round.
        UsageError: `io`, which is of float16.
    """
    from onnxport.optimizers.bfloat16 import to_bfloat16

    if params.io != "float":
        raise UsageError(
            "--io fp16 goes with --fp16", fix="leave it out: a bf16 model takes and gives float32"
        )
    with setting.watch.phase("convert"):
        done = to_bfloat16(model)
    return Quantized(done.model, done.notes, done.facts)


def _samples(model: Model, setting: Setting) -> Sequence[Feeds]:
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
