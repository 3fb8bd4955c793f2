"""Which models can be quantized: those that compute in floats."""

from __future__ import annotations

from collections import Counter

from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model

_QUANTIZED = frozenset(
    (
        "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger "
        "QGemm MatMulNBits MatMulIntegerToFloat DynamicQuantizeMatMul DynamicQuantizeLSTM QAttention "
        "QLinearAdd QLinearMul"
    ).split()
)


def check_float(model: Model) -> None:
    """Refuse a model that is quantized already (CannotConvertError)."""
    found = Counter(node.op_type for node in model.graph.all_nodes() if node.op_type in _QUANTIZED)
    if not found:
        return
    named = ", ".join(f"{count} {op}" for op, count in sorted(found.items()))
    raise CannotConvertError(
        f"{model.path} is quantized already",
        why=f"it has {named}",
        fix="give the float model that it was made of; as it is, onnxport convert keeps its scales for every target",
    )
