"""Shape inference: the user's sizes put into the graph, every other shape inferred anew.

Declared shapes of intermediate values are dropped: exporters and older simplifiers leave stale ones, such as a
static batch in a model with an open batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx_ir as ir

from onnxport.formats import onnx_inference
from onnxport.formats.input_shapes import GivenShape, apply_shapes
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.loop_shapes import LoopShapes
from onnxport.optimizers.node_marks import KNOWN_DOMAINS
from onnxport.optimizers.shape_arithmetic import TARGETED, Dimensions

# A round resolves one more layer of reshapes of reshapes; real models need two or three.
_MAX_ROUNDS = 20
# Axes, sizes and shapes have fewer elements, weights mostly more.
_COPIED_ELEMENTS = 64
# Operators that ONNX's inference lacks and whose result has the shape of the first operand -> its element type where
# it is always the same. LabelEncoder's follows from its attributes, which inference reads.
_LIKE_OPERAND: Mapping[tuple[str, str], ir.DataType | None] = {
    ("", "GroupNormalization"): None,
    ("ai.onnx.ml", "Imputer"): None,
    ("ai.onnx.ml", "LabelEncoder"): None,
    ("ai.onnx.ml", "Normalizer"): ir.DataType.FLOAT,
    ("ai.onnx.ml", "Scaler"): ir.DataType.FLOAT,
}

_TREES = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
_OF_TREES = ("nodes_", "class_", "target_")


def pin_inputs(model: Model, shapes: Mapping[str, GivenShape]) -> None:
    """Fix open dimensions of the inputs as the user asked (`--shape`).

    Raises:
        UsageError: an unknown input, or sizes that contradict the model.
    """
    wanted = apply_shapes(model.inputs, shapes)
    _write_onesided(model)
    for value in model.graph.inputs:
        if value.name in wanted:
            # An open dimension without a name gets one, so that inference can follow it.
            dims = enumerate(wanted[value.name])
            value.shape = ir.Shape(f"{value.name}.{axis}" if dim is None else dim for axis, dim in dims)


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
    _write_onesided(model)
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


def infer_first_steps(model: Model) -> None:
    """Infer shapes as they are in the first step of each loop, whatever becomes of its states later."""
    infer(model)
    loops = LoopShapes(model)
    for _ in range(2):  # the first round finds the shapes in front of the loops
        drop_declared(model)
        loops.write()
        _infer(model)
        loops.update()


def _write_onesided(model: Model) -> None:
    """Write the default of an STFT's onesided, 1: ONNX's inference takes 0, and ONNX Runtime refuses fixed sizes."""
    for node in model.graph.all_nodes():
        if node.op_type == "STFT" and node.domain == "" and "onesided" not in node.attributes:
            node.attributes["onesided"] = ir.AttrInt64("onesided", 1)


def _copy_small_constants(model: Model) -> None:
    """Copy small constants into branches and loop bodies: inference reads no others there."""
    inner = [graph for graph in model.ir.graphs() if graph is not model.graph]
    for graph in inner:
        twins: dict[ir.Value, ir.Value] = {}
        for node in graph:
            for index, value in enumerate(node.inputs):
                tensor = None if value is None or value.name in graph.initializers else value.const_value
                if value is None or tensor is None or tensor.size > _COPIED_ELEMENTS:
                    continue
                if value not in twins:
                    name = f"{value.name}.{inner.index(graph)}"
                    twins[value] = ir.Value(name=name, shape=value.shape, type=value.type, const_value=tensor)
                    graph.register_initializer(twins[value])
                node.replace_input_with(index, twins[value])


def _infer(model: Model) -> bool:
    with _without_trees(model):
        learned = onnx_inference.infer(model.ir)
        for _ in range(_MAX_ROUNDS):
            if not sum(_shapes_from_targets(graph) for graph in model.ir.graphs()):
                break
            learned = True
            onnx_inference.infer(model.ir)
    return learned


@contextmanager
def _without_trees(model: Model) -> Iterator[None]:
    """Take the numbers of trees away, of which no shape depends: each inference would write and read them all."""
    taken = [
        (node, dict(node.attributes))
        for node in model.graph.all_nodes()
        if node.domain == "ai.onnx.ml" and node.op_type in _TREES
    ]
    for node, attributes in taken:
        for name in attributes:
            if name.startswith(_OF_TREES):
                del node.attributes[name]
    try:
        yield
    finally:
        for node, attributes in taken:
            node.attributes.clear()  # the order stays, too
            node.attributes.update(attributes)


def _known_shapes(model: Model) -> list[tuple[object, ...]]:
    return [
        (value.shape is not None, value.dtype, *dims_of(value))
        for node in model.graph.all_nodes()
        for value in node.outputs
    ]


def _copy_shape(node: ir.Node, result: ir.Value) -> bool:
    """Give a result the shape of the first operand, and a type; return whether they are known."""
    operand = node.inputs[0]
    if operand is None or operand.shape is None or operand.dtype is None:
        return False
    if result.dtype is None:
        if node.op_type == "LabelEncoder":
            return False
        result.dtype = _LIKE_OPERAND[node.op_identifier()[:2]] or operand.dtype
    result.shape = ir.Shape(dims_of(operand))
    return True


def _shapes_from_targets(graph: ir.Graph) -> bool:
    """Set dimensions of Reshape, Expand and ConstantOfShape results that ONNX's inference does not find."""
    known, changed = Dimensions(graph), False
    for node in graph:
        result = node.outputs[0] if node.outputs else None
        if result is None:
            continue
        if node.op_identifier()[:2] in _LIKE_OPERAND and result.shape is None:
            changed |= _copy_shape(node, result)
        if node.domain not in ("", "ai.onnx"):
            continue
        derived = known.result_shape(node) if node.op_type in TARGETED else None
        if derived is None or result.dtype is None:  # ONNX writes no shape without a type
            continue
        inferred = None if result.shape is None else list(dims_of(result))
        if inferred is not None and len(inferred) == len(derived):
            # The derived dimensions count where they are more precise.
            pairs = zip(derived, inferred, strict=True)
            derived = [ours if isinstance(ours, int) else theirs for ours, theirs in pairs]
            if not any(
                isinstance(a, int) != isinstance(b, int) for a, b in zip(derived, inferred, strict=True)
            ):
                continue
        result.shape, changed = ir.Shape(derived), True
    return changed
