"""A model of an old opset, for the rewritings of a proof, which write operators as opset 11 has them.

ONNX's own converter lifts it: a fault of ours in a conversion's lift is none of the proof's then.
"""

from __future__ import annotations

import onnx
import onnx.version_converter
import onnx_ir as ir

from onnxport.formats.model import Model

# Slice takes starts, ends and axes as inputs since opset 10, Pad its pads since 11.
OLDEST = 11
# From this IR version on, a weight need not be an input of the graph: ONNX's converter refuses it before.
_FREE_WEIGHTS = 4


def without_old_operators(model: Model) -> Model:
    """Return `model` at opset 11 or newer; the model itself where it is, or where ONNX has no way to lift it."""
    return lift_with_onnx(model, OLDEST) or model


def lift_with_onnx(model: Model, opset: int) -> Model | None:
    """Return `model` at an opset, itself where it has that or a newer one; None where ONNX has no way to lift it."""
    if model.opset >= opset:
        return model
    data = model.to_bytes()
    if data is None:
        return None
    try:
        proto = onnx.load_from_string(data)
        proto.ir_version = max(proto.ir_version, _FREE_WEIGHTS)
        lifted = onnx.version_converter.convert_version(proto, opset)
    except (RuntimeError, ValueError):  # no adapter, or an operator of another domain
        return None
    return Model(ir.from_proto(lifted))
