"""Operators in float16: their schemas, and a table where these allow more than is accurate.

ONNX Runtime's CPU kernels do not matter here: where it has none in float16, it casts to float32 and back by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from onnxport.formats.model import dims_of
from onnxport.samples.value_uses import uses

ONNX = ("", "ai.onnx")
CONTROL_FLOW = frozenset(("If", "Loop", "Scan"))


# Operator -> why it computes in float32 though ONNX lets it be float16.
IN_FLOAT32: Mapping[str, str] = {
    op: why
    for ops, why in (
        ("BitCast", "reads the bits of float32"),
        ("CumSum CumProd DFT STFT Det ReduceProd", "adds up so much that float16's steps show"),
        ("Range", "counts, which float16 does up to 2048"),
        (
            "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
            "draws other numbers in float16",
        ),
        (
            "BlackmanWindow EyeLike HammingWindow HannWindow MelWeightMatrix",
            "makes numbers of a type that it names itself",
        ),
        (
            "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul MatMulInteger "
            "ConvInteger QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearConcat QLinearGlobalAveragePool "
            "QLinearAveragePool QGemm MatMulIntegerToFloat DynamicQuantizeMatMul DynamicQuantizeLSTM QAttention",
            "quantizes with scales that float16 is too coarse for",
        ),
    )
    for op in ops.split()
}
# Operands that ONNX lets be float16, and that stay float32: a region is given in fractions of thousands of pixels.
_OPERANDS_IN_FLOAT32 = frozenset({("Resize", 1)})
# Of so many equal results of a Softmax each is below float16's least normal number.
_MOST_SHARES = 16384


@dataclass(frozen=True)
class Float16Ports:
    """The float32 operands and results of a node that can be float16, by position."""

    operands: frozenset[int] = frozenset()
    results: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.operands or self.results)


def float16_ports(node: ir.Node, opset_imports: Mapping[str, int]) -> Float16Ports:
    """Return what of `node` can be float16: all of If, Loop and Scan; nothing of an operator without a schema."""
    operands = [i for i, value in enumerate(node.inputs) if is_float(value)]
    results = [i for i, value in enumerate(node.outputs) if is_float(value)]
    if node.op_type in CONTROL_FLOW and node.domain in ONNX:
        return Float16Ports(frozenset(operands), frozenset(results))
    formal = _signature(node.domain, node.op_type, opset_imports.get(node.domain, opset_imports.get("", 1)))
    if formal is None:
        return Float16Ports()
    operands = [i for i in operands if formal.operand(i) in formal.free]
    return Float16Ports(
        frozenset(i for i in operands if (node.op_type, i) not in _OPERANDS_IN_FLOAT32),
        frozenset(i for i in results if formal.result(i) in formal.free),
    )


def float32_reason(node: ir.Node, opset_imports: Mapping[str, int]) -> str:
    """Return why `node` must compute in float32 whatever its values are; empty if it need not."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    if any(value.dtype == ir.DataType.FLOAT and not is_float(value) for value in values):
        return "takes or gives sequences, which no Cast reaches"
    if node.op_type in IN_FLOAT32:
        return IN_FLOAT32[node.op_type]
    if node.op_type == "Softmax" and node.inputs[0] is not None and node.inputs[0].shape is not None:
        dims, axis = dims_of(node.inputs[0]), node.attributes.get_int("axis", -1)
        size = dims[axis] if -len(dims) <= axis < len(dims) else None
        if isinstance(size, int) and size >= _MOST_SHARES:
            return "gives shares too small for float16"
    if node.op_type == "Transpose" and _crashes(node):
        return "ONNX Runtime 1.31 crashes on it in float16 before a MatMul"
    if not float16_ports(node, opset_imports):
        return f"{node.op_type} takes no float16"
    for value in values:
        is_read = bool(value.uses()) or value.is_graph_output()
        if value.type is None and value.const_value is None and is_read:
            return f"the type of {value.name!r} is unknown"
    return ""


def _crashes(node: ir.Node) -> bool:
    """Return whether ONNX Runtime (1.31.1) would fuse it with a MatMul as `transBatchA`, which crashes in float16."""
    order = node.attributes.get_ints("perm", ())
    moves_the_batch = len(order) > 2 and order[0] != 0 and order[-1] == len(order) - 1
    return moves_the_batch and any(user.op_type == "MatMul" for user, _ in uses(node.outputs[0]))


def is_float(value: ir.Value | None) -> bool:
    """Return whether a value is a float32 tensor."""
    return value is not None and value.dtype == ir.DataType.FLOAT and isinstance(value.type, ir.TensorType)


def computes_floats(node: ir.Node) -> bool:
    """Return whether a node reads or computes a float32 tensor."""
    return any(map(is_float, (*node.inputs, *node.outputs)))


def complete_types(model: ir.Model) -> None:
    """Set types that ONNX's inference leaves open (it knows ONNX's own operators) from operator schemas."""
    for graph in model.graphs():
        for node in graph:
            opset = model.opset_imports.get(node.domain, 1)
            if node.domain in ONNX or all(value.type is not None for value in node.outputs):
                continue
            formal = _signature(node.domain, node.op_type, opset)
            if formal is None:
                continue
            inputs = [(i, value.dtype) for i, value in enumerate(node.inputs) if value is not None]
            known = {formal.operand(i): dtype for i, dtype in inputs if dtype is not None}
            known["tensor(float)"] = ir.DataType.FLOAT
            for i, value in enumerate(node.outputs):
                if value.type is None and (dtype := known.get(formal.result(i))) is not None:
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
    """Return an operator's signature from ONNX, or else from ONNX Runtime; None if neither knows it."""
    schema: Any
    try:
        schema = onnx.defs.get_schema(op_type, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        known = [
            each for each in state.get_all_operator_schema() if (each.domain, each.name) == (domain, op_type)
        ]
        old = [each for each in known if each.since_version <= opset]
        schema = max(old, key=lambda each: each.since_version, default=None)
    if schema is None:
        return None
    spelling = "type_str" if isinstance(schema, onnx.defs.OpSchema) else "typeStr"
    inputs, outputs = ([getattr(each, spelling) for each in ends] for ends in (schema.inputs, schema.outputs))
    both, constraints = {"tensor(float)", "tensor(float16)"}, schema.type_constraints
    free = (each.type_param_str for each in constraints if both <= set(each.allowed_type_strs))
    return _Signature(inputs, outputs, frozenset(free))


_MAKING_SEQUENCES = frozenset(
    "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceMap SplitToSequence".split()
)


def mark_sequences(graph: ir.Graph) -> None:
    """Set the type of values that are sequences: onnx-ir's inference (1.1) assigns that of the tensors in them."""
    for node in graph:
        if node.op_type in _MAKING_SEQUENCES and node.domain in ONNX:
            _mark(node.outputs[0])
        elif node.op_type == "Identity":
            _propagate(node.inputs[:1], node.outputs)
        elif node.op_type == "If":
            for name in ("then_branch", "else_branch"):
                branch = node.attributes[name].as_graph()
                mark_sequences(branch)
                _propagate(branch.outputs, node.outputs)
        elif node.op_type == "Loop":
            body = node.attributes["body"].as_graph()
            _propagate(node.inputs[2:], body.inputs[2:])
            mark_sequences(body)
            _propagate(body.outputs[1:], node.outputs)


def _propagate(sources: Iterable[ir.Value | None], results: Iterable[ir.Value]) -> None:
    for source, result in zip(sources, results, strict=False):
        if source is not None and isinstance(source.type, ir.SequenceType):
            _mark(result)


def _mark(value: ir.Value) -> None:
    if isinstance(value.type, ir.TensorType):
        value.type = ir.SequenceType(value.type)
        value.shape = None
