"""Lift of a model to a newer opset, so that later passes and converters know one form of each operator."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.optimizers.opset.errors import LiftError, refusal
from onnxport.optimizers.opset.node import ADAPTERS, Change, Node, NoForm
from onnxport.optimizers.opset.schemas import (
    default_domain,
    is_default,
    set_opset,
    since,
)
from onnxport.optimizers.opset.type_inference import InferredTypes, infer_types
from onnxport.optimizers.opset.upgrade_adapters import NEED_TYPES
from onnxport.optimizers.params import CANONICAL_OPSET, NEWEST_OPSET, OLDEST_OPSET

# Below IR 4 every initializer had to be an input as well; ONNX Runtime does not let callers override these.
_IR_WITH_FREE_INITIALIZERS = 4

# ONNX 1.5 (opset 10) removed these experimental operators without a successor.
_EXPERIMENTAL = frozenset(
    "ATen Affine ConstantFill Crop DynamicSlice GRUUnit GivenTensorFill ImageScaler ParametricSoftplus Scale "
    "ScaledTanh".split()
)
# ONNX Runtime had these in the default domain before ONNX, with the later meaning; only MeanVarianceNormalization
# differed and has an adapter.
_KNOWN_EARLIER = {"LayerNormalization", "MeanVarianceNormalization", "ThresholdedRelu"}


def lift(model: ir.Model, to: int = CANONICAL_OPSET) -> list[str]:
    """Raise the default domain's opset of `model` to `to`, in place, subgraphs included.

    Names and weights stay. A model at `to` or newer, or without ONNX operators, is left alone. The IR version rises
    to the oldest that holds the opset. After a LiftError the model is unusable.

    Returns:
        The op types that were rewritten, as the model spelled them, sorted, each once.

    Raises:
        LiftError: the model is older than opset 7, has functions, or has nodes with no form at `to`.
    """
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    if not OLDEST_OPSET <= to <= newest:
        raise ValueError(f"adapters exist for opset {OLDEST_OPSET} to {newest}, not {to}")
    opset = default_domain(model.opset_imports)
    if opset is None or opset >= to:
        return []
    old = [f.name for f in model.functions.values() if (default_domain(f.opset_imports) or to) < to]
    if old:
        raise LiftError(f"the model functions {', '.join(sorted(old))} must be inlined before a lift")
    changed = lift_graph(model, opset, to)
    if model.ir_version < _IR_WITH_FREE_INITIALIZERS:
        for value in [v for v in model.graph.inputs if v.name in model.graph.initializers]:
            model.graph.inputs.remove(value)
    model.ir_version = max(model.ir_version, onnx.helper.OP_SET_ID_VERSION_MAP["ai.onnx", to])
    set_opset(model, to)
    return changed


def lift_graph(model: ir.Model, opset: int, to: int, *, of_function: bool = False) -> list[str]:
    """Lift the nodes alone; `of_function` for a function's graph, which holds no initializers."""
    if opset < OLDEST_OPSET:
        raise LiftError(
            f"the model has opset {opset}, older than {OLDEST_OPSET}",
            why="ONNX Runtime does not support such models, so the conversion cannot be proven",
            fix="export it again with a newer opset",
        )
    refused = dict(_foreign_nodes(model, opset, to))
    op_types = {node: node.op_type for node in model.graph.all_nodes()}
    typed = {op for op, version in NEED_TYPES if opset < version <= to}
    needs_types = any(is_default(node) and op in typed for node, op in op_types.items())
    known = infer_types(model) if needs_types else InferredTypes({})
    change = Change(model, to, known, holds_constants=not of_function)
    for version in range(opset + 1, to + 1):
        adapted = {op for op, each in ADAPTERS if each == version}
        for node in list(model.graph.all_nodes()) if adapted else ():
            if node in refused or node.op_type not in adapted or not is_default(node):
                continue
            try:
                ADAPTERS[node.op_type, version](Node(node, change))
            except NoForm as error:
                refused[node] = str(error)
    if refused:
        raise LiftError(
            f"{len(refused)} of {len(op_types)} nodes cannot be lifted from opset {opset} to {to}",
            refusals=[refusal(node, op_types.get(node, node.op_type), why) for node, why in refused.items()],
        )
    return sorted({op_types[node] for node in change.changed if node in op_types})


def _foreign_nodes(model: ir.Model, opset: int, to: int) -> Iterator[tuple[ir.Node, str]]:
    """Yield nodes that ONNX did not define at `opset` but does at `to`, or that were removed, with the reason.

    A name that ONNX never had, as SimplifiedLayerNormalization, means the same at any opset.
    """
    for node in model.graph.all_nodes():
        op = node.op_type
        if not is_default(node) or op in _KNOWN_EARLIER or since(op, opset):
            continue
        if op in _EXPERIMENTAL and to >= 10:
            yield node, "an experimental operator that ONNX removed in opset 10; export the model again"
        elif first := since(op, to):
            yield node, f"ONNX has it since opset {first} only; the opset {opset} in the file may be wrong"


def inline_functions(model: ir.Model) -> list[str]:
    """Inline the file's own functions, in place; model and functions get the newest opset among them.

    Returns:
        The functions' names, sorted.

    Raises:
        LiftError: a body has no form at the newest opset among them, or versions of another domain differ, or a call
            leaves out the value of a Constant.
    """
    functions = list(model.functions.values())
    if not functions:
        return []
    imports = [model.opset_imports, *(function.opset_imports for function in functions)]
    newest = max((opset for opset in map(default_domain, imports) if opset is not None), default=0)
    for function in functions:
        own = default_domain(function.opset_imports)
        if own is not None and own < newest:
            lift_graph(ir.Model(function.graph, ir_version=model.ir_version), own, newest, of_function=True)
        if own is not None:
            function.opset_imports.pop("ai.onnx", None)
            function.opset_imports[""] = newest
    if default_domain(model.opset_imports) is not None:
        lift(model, newest)
    try:
        common.InlinePass()(model)
        _check_constants(model.graph)
    except (ValueError, ir.passes.PassError) as error:
        raise LiftError(
            "the model's functions cannot be inlined",
            why=str(error.__cause__ or error),
            fix="export the model without functions",
        ) from error
    model.functions.clear()  # also uncalled ones
    return sorted({function.name for function in functions})


def _check_constants(graph: ir.Graph) -> None:
    """Raise ValueError for a Constant without its value, which referred to an attribute that a call leaves out."""
    for node in graph.all_nodes():
        if node.op_type == "Constant" and is_default(node) and not node.attributes:
            raise ValueError(f"its Constant {node.name or node.outputs[0].name!r} has no value")
