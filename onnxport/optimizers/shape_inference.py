"""Shape inference: the user's sizes put into the graph, every other shape inferred anew.

Declared shapes of intermediate values are dropped: exporters and older simplifiers leave stale ones, such as a
static batch in a model with an open batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.artifact import Dim
from onnxport.formats.input_shapes import GivenShape, apply_shapes
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.loop_shapes import LoopShapes
from onnxport.optimizers.shape_arithmetic import TARGETED, Dimensions

# A round resolves one more layer of reshapes of reshapes; real models need two or three.
_MAX_ROUNDS = 20
# Axes, sizes and shapes have fewer elements, weights mostly more.
_COPIED_ELEMENTS = 64
# Operators that ONNX's inference lacks and whose result has type and shape of the first operand.
_LIKE_OPERAND = frozenset(("GroupNormalization",))


def pin_inputs(model: Model, shapes: Mapping[str, GivenShape]) -> None:
    """Fix open dimensions of the inputs as the user asked (`--shape`).

    Raises:
        UsageError: an unknown input, or sizes that contradict the model.
    """
    wanted = apply_shapes(model.inputs, shapes)
    for value in model.graph.inputs:
        if value.name in wanted:
            # An open dimension without a name gets one, so that inference can follow it.
            value.shape = ir.Shape(
                [
                    f"{value.name}.{axis}" if dim is None else dim
                    for axis, dim in enumerate(wanted[value.name])
                ]
            )


# Domains whose operators shape inference knows.
KNOWN_DOMAINS = frozenset(
    ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")
)


def drop_declared(model: Model) -> None:
    """Drop the shape of every node result, except of operators of unknown domains; element types stay."""
    for graph in model.ir.graphs():
        for node in graph:
            if node.domain in KNOWN_DOMAINS:
                for value in node.outputs:
                    value.shape = None


def drop_value_info(model: Model) -> None:
    """Drop shape and element type of the values inside the graphs, except of operators of unknown domains."""
    for graph in model.ir.graphs():
        outputs = set(graph.outputs)
        for node in graph:
            if node.domain in KNOWN_DOMAINS:
                for value in node.outputs:
                    if value not in outputs:
                        value.shape = value.type = None


def infer(model: Model) -> bool:
    """Run ONNX's shape inference with data propagation, extended for Loop and for Reshape targets known in part.

    Returns whether it learned anything. An unknown shape is no error: a lowering that needs it refuses its node.
    """
    _copy_small_constants(model)
    loops = LoopShapes(model)
    if not loops.loops:
        return _infer(model)
    before = _known_shapes(model)
    while True:
        drop_declared(model)
        loops.write()
        _infer(model)
        if not loops.update():
            break
    return _known_shapes(model) != before


def _copy_small_constants(model: Model) -> None:
    """Copy small constants into branches and loop bodies: inference reads no others there."""
    inner = [graph for graph in model.ir.graphs() if graph is not model.graph]
    for graph in inner:
        twins: dict[ir.Value, ir.Value] = {}
        for node in graph:
            for index, value in enumerate(node.inputs):
                if value is None or value.const_value is None or value.name in graph.initializers:
                    continue
                if value.const_value.size <= _COPIED_ELEMENTS:
                    if value not in twins:
                        twins[value] = _twin(value, f"{value.name}.{inner.index(graph)}")
                        graph.register_initializer(twins[value])
                    node.replace_input_with(index, twins[value])


def _twin(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, shape=value.shape, type=value.type, const_value=value.const_value)


def _infer(model: Model) -> bool:
    inference = common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)
    learned = inference(model.ir).modified
    for _ in range(_MAX_ROUNDS):
        if not sum(_shapes_from_targets(graph) for graph in model.ir.graphs()):
            break
        learned = True
        inference(model.ir)
    return bool(learned)


def _known_shapes(model: Model) -> list[tuple[object, ...]]:
    """Return all known types and dimensions of node results."""
    return [
        (value.shape is not None, value.dtype, *dims_of(value))
        for node in model.graph.all_nodes()
        for value in node.outputs
    ]


def _copy_operand_type(result: ir.Value, operand: ir.Value | None) -> bool:
    """Copy an operand's type and shape to a result without; return whether that is new."""
    if operand is None or operand.shape is None or operand.dtype is None or result.shape is not None:
        return False
    result.dtype, result.shape = operand.dtype, ir.Shape(dims_of(operand))
    return True


def _shapes_from_targets(graph: ir.Graph) -> bool:
    """Set dimensions of Reshape, Expand and ConstantOfShape results that ONNX's inference does not find."""
    known, changed = Dimensions(graph), False
    for node in graph:
        if node.op_type in _LIKE_OPERAND and node.domain in ("", "ai.onnx"):
            changed |= _copy_operand_type(node.outputs[0], node.inputs[0])
        if node.op_type not in TARGETED or node.domain not in ("", "ai.onnx"):
            continue
        shape, value = known.result_shape(node), node.outputs[0]
        if shape is None or value.dtype is None:  # ONNX writes no shape without a type
            continue
        merged = _merge_dims(None if value.shape is None else list(dims_of(value)), shape)
        if merged is not None:
            value.shape, changed = ir.Shape(merged), True
    return changed


def _merge_dims(inferred: list[Dim] | None, derived: list[Dim]) -> list[Dim] | None:
    """Return the derived dimensions where they are more precise than the inferred ones; None if nowhere."""
    if inferred is None or len(inferred) != len(derived):
        return derived
    better = [
        ours if isinstance(ours, int) else theirs for ours, theirs in zip(derived, inferred, strict=True)
    ]
    return better if [isinstance(d, int) for d in better] != [isinstance(d, int) for d in inferred] else None
