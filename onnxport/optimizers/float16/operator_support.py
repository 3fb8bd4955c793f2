"""Operators in float16: their schemas, and a table where these allow more than is accurate.

ONNX Runtime's CPU kernels do not matter here: where it has none in float16, it casts to float32 and back by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx
import onnx_ir as ir

from onnxport.samples.value_uses import uses

ONNX = ("", "ai.onnx")
CONTROL_FLOW = frozenset(("If", "Loop", "Scan"))

_SUMS = "adds up so much that float16's steps show"
_COUNTS = "counts, which float16 does up to 2048"
_RANDOM = "draws other numbers in float16"
_TYPED = "makes numbers of a type that it names itself"
_SCALES = "quantizes with scales that float16 is too coarse for"
_SEQUENCES = "takes or gives sequences, which no Cast reaches"

# Operator -> why it computes in float32 though ONNX lets it be float16.
IN_FLOAT32: Mapping[str, str] = {
    "BitCast": "reads the bits of float32",
    **dict.fromkeys(("CumSum", "CumProd", "DFT", "STFT", "Det", "ReduceProd"), _SUMS),
    "Range": _COUNTS,
    **dict.fromkeys(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(), _RANDOM
    ),
    **dict.fromkeys("BlackmanWindow EyeLike HammingWindow HannWindow MelWeightMatrix".split(), _TYPED),
    **dict.fromkeys(
        (
            "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul MatMulInteger "
            "ConvInteger QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearConcat QLinearGlobalAveragePool "
            "QLinearAveragePool QGemm MatMulIntegerToFloat DynamicQuantizeMatMul DynamicQuantizeLSTM QAttention"
        ).split(),
        _SCALES,
    ),
}
# Operands that ONNX lets be float16, and that stay float32: a region is given in fractions of thousands of pixels.
_OPERANDS_IN_FLOAT32 = frozenset({("Resize", 1)})
# Whose elements get smaller the more there are: of so many that are alike, each is below float16's least normal number.
_SHARING, _MOST_SHARES = frozenset(("Softmax",)), 16384


@dataclass(frozen=True)
class Float16Ports:
    """The float32 operands and results of a node that can be float16, by position."""

    operands: frozenset[int] = frozenset()
    results: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.operands or self.results)


def float16_ports(node: ir.Node, opset_imports: Mapping[str, int]) -> Float16Ports:
    """Return what of `node` can be float16: every tensor of If, Loop and Scan; nothing of an operator without a
    known schema.
    """
    operands = [i for i, value in enumerate(node.inputs) if is_float(value)]
    results = [i for i, value in enumerate(node.outputs) if is_float(value)]
    if node.op_type in CONTROL_FLOW and node.domain in ONNX:
        return Float16Ports(frozenset(operands), frozenset(results))
    formal = _signature(node.domain, node.op_type, opset_imports.get(node.domain, opset_imports.get("", 1)))
    if formal is None:
        return Float16Ports()
    return Float16Ports(
        frozenset(
            i
            for i in operands
            if formal.operand(i) in formal.free and (node.op_type, i) not in _OPERANDS_IN_FLOAT32
        ),
        frozenset(i for i in results if formal.result(i) in formal.free),
    )


def unfit(node: ir.Node, opset_imports: Mapping[str, int]) -> str:
    """Return why `node` must compute in float32 whatever its values are; empty if it need not."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    if any(
        not isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT for value in values
    ):
        return _SEQUENCES
    if node.op_type in IN_FLOAT32:
        return IN_FLOAT32[node.op_type]
    if node.op_type in _SHARING and _shares(node) >= _MOST_SHARES:
        return "gives shares too small for float16"
    if node.op_type == "Transpose" and _crashes(node):
        return "ONNX Runtime 1.31 crashes on it in float16 before a MatMul"
    if not float16_ports(node, opset_imports):
        return f"{node.op_type} takes no float16"
    if unknown := [each.name for each in values if _has_unknown_type(each)]:
        return f"nobody here can tell the type of {unknown[0]!r}"
    return ""


def _has_unknown_type(value: ir.Value) -> bool:
    is_read = bool(value.uses()) or value.is_graph_output()
    return value.type is None and value.const_value is None and is_read


def _crashes(node: ir.Node) -> bool:
    """Return whether ONNX Runtime (1.31.1) would fuse it with a MatMul as `transBatchA`, which crashes in
    float16."""
    order = node.attributes.get_ints("perm", ())
    moves_the_batch = len(order) > 2 and order[0] != 0 and order[-1] == len(order) - 1
    return moves_the_batch and any(user.op_type == "MatMul" for user, _ in uses(node.outputs[0]))


def is_float(value: ir.Value | None) -> bool:
    """Return whether a value is a float32 tensor."""
    return value is not None and value.dtype == ir.DataType.FLOAT and isinstance(value.type, ir.TensorType)


def computes_floats(node: ir.Node) -> bool:
    """Return whether a node reads or computes a float32 tensor."""
    return any(map(is_float, (*node.inputs, *node.outputs)))


def _shares(node: ir.Node) -> int:
    """Return the length of the axis that a Softmax divides; 0 where it is open."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    axis = node.attributes.get_int("axis", -1)
    if shape is None or not -len(shape) <= axis < len(shape):
        return 0
    size = shape[axis]
    return size if isinstance(size, int) else 0


def complete_types(model: ir.Model) -> None:
    """Set types that ONNX's inference leaves open (it knows ONNX's own operators) from operator schemas."""
    for graph in model.graphs():
        for node in graph:
            opset = model.opset_imports.get(node.domain, 1)
            if any(value.type is None for value in node.outputs) and node.domain not in ONNX:
                _complete_results(node, _signature(node.domain, node.op_type, opset))


def _complete_results(node: ir.Node, formal: _Signature | None) -> None:
    if formal is None:
        return
    known = {
        formal.operand(i): v.dtype for i, v in enumerate(node.inputs) if v is not None and v.dtype is not None
    }
    known["tensor(float)"] = ir.DataType.FLOAT
    for position, value in enumerate(node.outputs):
        if value.type is None and (dtype := known.get(formal.result(position))) is not None:
            value.type = ir.TensorType(dtype)


@dataclass(frozen=True)
class _Signature:
    """Types from an operator's schema.

    Attributes:
        operands, results: the type of each by position, a variable's name or a concrete type; the last one goes on for
            operators that take any number.
        free: type variables that may be float32 or float16.
    """

    operands: Sequence[str]
    results: Sequence[str]
    free: frozenset[str]

    def operand(self, position: int) -> str:
        return self.operands[min(position, len(self.operands) - 1)] if self.operands else ""

    def result(self, position: int) -> str:
        return self.results[min(position, len(self.results) - 1)] if self.results else ""


@cache
def _signature(domain: str, op_type: str, opset: int) -> _Signature | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return _onnxruntime_signature(domain, op_type, opset)
    return _Signature(
        [each.type_str for each in schema.inputs],
        [each.type_str for each in schema.outputs],
        _float_variables({each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}),
    )


@cache
def _onnxruntime_signature(domain: str, op_type: str, opset: int) -> _Signature | None:
    """Return the schema of one of ONNX Runtime's own operators."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    known = [
        each
        for each in state.get_all_operator_schema()
        if (each.domain, each.name) == (domain, op_type) and each.since_version <= opset
    ]
    if not known:
        return None
    schema = max(known, key=lambda each: each.since_version)
    return _Signature(
        [each.typeStr for each in schema.inputs],
        [each.typeStr for each in schema.outputs],
        _float_variables({each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}),
    )


def _float_variables(constraints: Mapping[str, Sequence[str]]) -> frozenset[str]:
    both = {"tensor(float)", "tensor(float16)"}
    return frozenset(name for name, allowed in constraints.items() if both <= set(allowed))
