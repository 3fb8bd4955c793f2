"""The older exporter, on request only: TorchScript's trace of one example."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from onnxport.core.errors import CannotConvertError
from onnxport.exporters.pytorch.capture import Dims
from onnxport.exporters.pytorch.errors import at_place, first_line, place_of_error
from onnxport.exporters.pytorch.example_inputs import Call
from onnxport.exporters.pytorch.onnx_writer import strip_metadata
from onnxport.formats.model import Model

NOTE = (
    "exported by tracing (--exporter torchscript): branches and loops are those that the example took; "
    "torch no longer develops it"
)
_OLDEST_OPSET, _NEWEST_OPSET, _USUAL_OPSET = 9, 20, 18


def write(
    module: Any,
    call: Call,
    tensors: Mapping[str, torch.Tensor],
    dynamic: Dims,
    output: Path,
    opset: int | None,
    outputs: Sequence[str],
    name: str,
) -> None:
    """Write a trace of `module` on `tensors`. Raises CannotConvertError: the exporter refuses it."""
    args, kwargs = call.arguments(tensors)
    axes = {
        key: {axis: dim for axis, dim in enumerate(dims) if dim is not None} for key, dims in dynamic.items()
    }
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (*args, kwargs) if kwargs else args,
                output,
                dynamo=False,
                input_names=list(call.names),
                output_names=list(outputs),
                dynamic_axes=axes,
                opset_version=min(max(opset or _USUAL_OPSET, _OLDEST_OPSET), _NEWEST_OPSET),
            )
    except Exception as error:  # tracing runs the user's code and raises whatever that does
        where = at_place(place_of_error(error.__traceback__, module))
        raise CannotConvertError(
            f"{name} cannot be traced by the TorchScript exporter{where}",
            why=first_line(error),
            fix="leave --exporter torchscript out: torch.export takes more operators",
        ) from error
    model = Model(ir.load(output))
    strip_metadata(model)
    model.save(output)
