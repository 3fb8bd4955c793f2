"""ONNX Runtime with integer arithmetic that no CPU saturates, for expected values: by its own settings, not by ours."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime

from onnxport.formats.model import Model
from onnxport.runtimes.ort.exact_integers import with_unsigned_weights


def options() -> onnxruntime.SessionOptions:
    """Options of a session that answers alike on x86 with and without VNNI.

    What stands between DequantizeLinear and QuantizeLinear is computed in float, as ONNX defines it, and the weights of
    integer operators are widened by ONNX Runtime where its kernels would saturate.
    """
    found = onnxruntime.SessionOptions()
    found.log_severity_level = 4
    found.add_session_config_entry("session.disable_quant_qdq", "1")
    found.add_session_config_entry("session.x64quantprecision", "1")
    return found


def saved(model: onnx.ModelProto | bytes) -> bytes:
    """The model's bytes, for a session without graph optimization, at which the settings above do nothing: products of
    uint8 and int8 are ones of uint8 alone (held to NumPy by tests/runtimes/test_exact_integers.py)."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    exact = with_unsigned_weights(Model(ir.from_proto(onnx.ModelProto.FromString(data))))
    if exact is None:
        return data
    found = exact.to_bytes()
    assert found is not None, "a test's model is small"
    return found
