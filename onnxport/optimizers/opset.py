"""Lifts a model to one canonical opset: every later pass and converter knows one form of each operator.

A table of our own (`opset_adapters.py`) and not `onnx.version_converter`: that one serializes the weights, and of
111 old forms in our tests it refused 7, got 11 wrong and wrote 8 that do not load (version 1.23: Hardmax, Resize-10,
Clip and Pad of other types than float32, BatchNormalization with `spatial=0`, GroupNormalization, Scan and more).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx.shape_inference
import onnx_ir as ir

from onnxport.errors import CannotConvertError, Refusal
from onnxport.model import Model
from onnxport.optimizers.opset_adapters import ADAPTERS, NEED_TYPES, CannotLift, Known, Lifting, Node

CANONICAL_OPSET = 21
# ONNX Runtime promises nothing below, so nothing could prove what a lift from there did.
OLDEST_OPSET = 7
# Below IR 4 every initializer had to be an input as well; ONNX Runtime lets nobody override those.
_IR_WITH_FREE_INITIALIZERS = 4

# ONNX 1.5 (opset 10) removed these experimental operators without a successor.
_EXPERIMENTAL = {
    "ATen",
    "Affine",
    "ConstantFill",
    "Crop",
    "DynamicSlice",
    "GRUUnit",
    "GivenTensorFill",
    "ImageScaler",
    "ParametricSoftplus",
    "Scale",
    "ScaledTanh",
}
# ONNX Runtime knew these in the default domain before ONNX did, and they meant what ONNX then made of them;
# MeanVarianceNormalization did not and has an adapter.
_KNOWN_EARLIER = {"LayerNormalization", "MeanVarianceNormalization", "ThresholdedRelu"}
# A tensor with more elements carries no shape, axes or sizes that shape inference would want to read.
_WEIGHT_ELEMENTS = 256


class LiftError(CannotConvertError):
    """The model cannot be brought to the opset asked for; `refusals` lists every node in the way."""


def lift(model: ir.Model, to: int = CANONICAL_OPSET) -> list[str]:
    """Brings the default domain's opset of `model` up to `to`, in place, subgraphs included.

    A model that is at `to` or newer, or uses no ONNX operator, is left as it is. Values keep their names and
    weights are not touched. The IR version rises to the oldest that holds the opset. After a LiftError the
    model is half lifted and good for nothing.

    Returns:
        The op types that were rewritten, as the model spelled them, sorted, each once.

    Raises:
        LiftError: the model is older than opset 7, has functions, or has nodes with no form at `to`.
    """
    if not OLDEST_OPSET <= to <= CANONICAL_OPSET:
        raise ValueError(f"adapters exist for opset {OLDEST_OPSET} to {CANONICAL_OPSET}, not {to}")
    opset = _default_domain(model.opset_imports)
    if opset is None or opset >= to:
        return []
    _refuse_model(model, opset, to)
    refused = dict(_foreign_nodes(model, opset, to))
    _raise_ir_version(model, to)
    op_types = {node: node.op_type for node in model.graph.all_nodes()}
    lifting = Lifting(model, to, _inferred(model) if _needs_types(model, opset, to) else {})
    for version in range(opset + 1, to + 1):
        for node in _nodes_that_change(model, version):
            if node in refused:
                continue
            try:
                ADAPTERS[node.op_type, version](Node(node, lifting))
            except CannotLift as error:
                refused[node] = str(error)
    if refused:
        raise LiftError(
            f"{len(refused)} of {len(op_types)} nodes cannot be lifted from opset {opset} to {to}",
            refusals=[_refusal(node, op_types.get(node, node.op_type), why) for node, why in refused.items()],
        )
    model.opset_imports.pop("ai.onnx", None)
    model.opset_imports[""] = to
    return sorted({op_types[node] for node in lifting.changed if node in op_types})


def _default_domain(opset_imports: Mapping[str, int]) -> int | None:
    """The default domain's version; "ai.onnx" is its other spelling (ONNX IR, Operator Sets)."""
    return opset_imports.get("", opset_imports.get("ai.onnx"))


def _refuse_model(model: ir.Model, opset: int, to: int) -> None:
    if opset < OLDEST_OPSET:
        raise LiftError(
            f"the model has opset {opset}, older than {OLDEST_OPSET}",
            why="ONNX Runtime promises nothing for such models, so no lift could be proven",
            fix="export it again with a newer opset",
        )
    old = [f.name for f in model.functions.values() if (_default_domain(f.opset_imports) or to) < to]
    if old:
        raise LiftError(f"the model functions {', '.join(sorted(old))} must be inlined before a lift")


def _foreign_nodes(model: ir.Model, opset: int, to: int) -> Iterator[tuple[ir.Node, str]]:
    """Nodes in the default domain that ONNX did not define at `opset`, but does at `to`, or that are gone.

    A name that ONNX never had, as ONNX Runtime's SimplifiedLayerNormalization, means the same at any opset.
    """
    for node in model.graph.all_nodes():
        op = node.op_type
        if node.domain != "" or op in _KNOWN_EARLIER or _since(op, opset):
            continue
        if op in _EXPERIMENTAL and to >= 10:
            yield node, "an experimental operator that ONNX removed in opset 10; export the model again"
        elif since := _since(op, to):
            yield node, f"ONNX has it since opset {since} only; the opset {opset} in the file may be wrong"


def _nodes_that_change(model: ir.Model, version: int) -> list[ir.Node]:
    adapted = {op for op, since in ADAPTERS if since == version}
    if not adapted:
        return []
    return [node for node in model.graph.all_nodes() if node.domain == "" and node.op_type in adapted]


def _since(op: str, opset: int) -> int:
    """The version of the operator that a model of `opset` uses, 0 when there is none."""
    try:
        return int(onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def _refusal(node: ir.Node, op_type: str, why: str) -> Refusal:
    return Refusal(op_type, node.name or next((o.name for o in node.outputs if o.name), "") or "", why)


def _raise_ir_version(model: ir.Model, opset: int) -> None:
    """The oldest IR version that holds `opset`; constants that IR 3 lists as inputs stop being inputs."""
    if model.ir_version < _IR_WITH_FREE_INITIALIZERS:
        for value in [v for v in model.graph.inputs if v.name in model.graph.initializers]:
            model.graph.inputs.remove(value)
    model.ir_version = max(model.ir_version, onnx.helper.OP_SET_ID_VERSION_MAP["ai.onnx", opset])


def _needs_types(model: ir.Model, opset: int, to: int) -> bool:
    wanted = {op for op, version in NEED_TYPES if opset < version <= to}
    return any(node.domain == "" and node.op_type in wanted for node in model.graph.all_nodes())


def _inferred(model: ir.Model) -> Known:
    """Types and shapes of all values, inferred from the graph's inputs on.

    The shapes that a file declares for its intermediates are often wrong, and a rewrite that relied on one
    would be too. Declared types stay: after an operator that ONNX does not know they are all there is.
    """
    bare = model.clone()
    for graph in bare.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _without_bytes(value.const_value)
        for value in [*graph.outputs, *(graph.inputs if graph is not bare.graph else ())]:
            value.shape = None
    for node in bare.graph.all_nodes():
        for value in node.outputs:
            value.shape = None
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.TENSOR:
                node.attributes.add(ir.AttrTensor(name, _without_bytes(attribute.as_tensor())))
    proto = ir.to_proto(bare)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return {}  # every adapter has a form for the unknown
    pairs = zip(_values(model), _values(ir.from_proto(proto)), strict=True)
    return {value: (twin.dtype, twin.shape) for value, twin in pairs}


def _without_bytes(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A stand-in for a big tensor with its type and shape only: inference must not copy weights."""
    if tensor.size <= _WEIGHT_ELEMENTS or isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.ExternalTensor(
        "unread", 0, 0, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or ""
    )


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value that a graph takes in or a node makes, in an order that a copy of the model shares."""
    for graph in model.graphs():
        yield from graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs


def brought_to(model: Model, opset: int) -> Model:
    """A copy of `model` at `opset`, newer or older.

    Raises:
        LiftError: nodes that have no form there.
    """
    copy = model.clone()
    lift(copy.ir, opset)
    return copy
