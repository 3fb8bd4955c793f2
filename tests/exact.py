"""ONNX Runtime with integer arithmetic that no CPU saturates, for expected values: by its own settings, not by ours."""

from __future__ import annotations

import onnxruntime


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
