"""Facts of a graph that matter for rounding: the length of its sums, and which outputs depend on which inputs.

The models here have no model-local functions (samples.domain.without_functions).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.model import Model
from onnxport.samples.shapes.analysis import Sizes, infer
from onnxport.samples.shapes.fact import Fact, fixed, size
from onnxport.samples.shapes.rules import RULES
from onnxport.samples.value_uses import CARRIERS, constant
from onnxport.validate.report import NodeRef

# Assumed where there is no graph to read (`.ort`, `.tflite` as reference): a 3x3 convolution over 128 channels.
UNKNOWN_LENGTH = 1152

_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "ConvTranspose", "DeformConv", "QLinearConv"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
# Operators that read only the sizes of a value.
_SIZES = frozenset({"Shape", "Size"})
_NOTHING = frozenset[str]()
# Operators whose results have the same elements for every input of a shape, or fill a shape with a constant.
_SHAPES = _SIZES | {"ConstantOfShape", "EyeLike"}
_REDUCTIONS = frozenset(
    "ReduceSum ReduceMean GlobalAveragePool ReduceL2 ReduceSumSquare ReduceLogSumExp".split()
)
_LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})
# ONNX Runtime computes these around their middle, so near 0 they are exact to eps absolutely, not relatively: MLAS
# evaluates Sigmoid as 0.5 + a rational function of x, cut at +-18.
_SATURATING = frozenset({"Sigmoid", "HardSigmoid"})
_LOGISTIC = 2
# Their results are whole numbers wherever their arguments are large.
_SQUASHING = frozenset("Softmax Sigmoid HardSigmoid Tanh".split())
_MOVERS = frozenset("Cast Identity Reshape Squeeze Unsqueeze Transpose Flatten".split())
# Operators that give booleans.
_TESTS = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor Not".split())
# Operators that pass such a value on without shrinking its error.
_KEEPERS = CARRIERS.union(
    "ReduceMean ReduceMax ReduceMin MaxPool AveragePool GlobalAveragePool GlobalMaxPool".split()
)


def accumulation_length(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> int:
    """Return the length of the longest sum of products, by the shapes of weights and values; at least 1.

    Args:
        shapes: of the inputs; the declared ones unless given.
    """
    sizes = _inferred_sizes(model, shapes or {})
    lengths = (node_length(node, sizes) for graph in _graphs(model) for node in graph)
    return max((length for length in lengths if length is not None), default=1)


def _graphs(model: Model) -> Iterator[ir.Graph]:
    yield model.graph
    yield from model.graph.subgraphs()


def _inferred_sizes(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Return the sizes of the values, by `id`, that follow from the sizes of the inputs, given or declared."""
    inputs = {
        value.name or "": Fact(
            tuple(
                size(dim) if isinstance(dim, int) else None
                for dim in shapes.get(value.name or "", value.shape)
            )
        )
        for value in model.graph.inputs
        if value.shape is not None and value.name not in model.graph.initializers
    }
    facts = infer(model.graph, RULES, inputs, Sizes({}))
    found = {key: [fixed(dim) for dim in fact.dims] for key, fact in facts.items() if fact.dims is not None}
    return {key: tuple(dim or 0 for dim in dims) for key, dims in found.items() if None not in dims}


def node_length(node: ir.Node, sizes: Mapping[int, tuple[int, ...]] | None = None) -> int | None:
    """Return the number of terms in one output element's sum; None for no sum or unknown sizes.

    Args:
        sizes: of values of which the file declares none, by `id`.
    """
    if node.op_type in _CONVOLUTIONS:
        weights = _dims(node.inputs[3 if node.op_type == "QLinearConv" else 1])
        return None if weights is None else math.prod(weights[1:])
    if node.op_type in ("MatMul", "Gemm", "FusedMatMul"):
        return _contracted(node)
    if node.op_type in _RECURRENT:
        weights, recurrence = _dims(node.inputs[1]), _dims(node.inputs[2])
        return None if weights is None or recurrence is None else weights[-1] + recurrence[-1]
    if node.op_type in _REDUCTIONS:
        return _reduced(node, sizes or {})
    if node.op_type in _LOSSES:
        return _averaged(node, sizes or {})
    if node.op_type in ("TreeEnsembleRegressor", "TreeEnsembleClassifier"):
        return len(set(node.attributes["nodes_treeids"].as_ints()))
    if node.op_type == "TreeEnsemble":
        return len(node.attributes["tree_roots"].as_ints())
    return None


def _contracted(node: ir.Node) -> int | None:
    """Return the size of the axis that both factors share, by whichever is known."""
    transposed = "transB" in node.attributes and node.attributes["transB"].as_int()
    right, left = _dims(node.inputs[1]), _dims(node.inputs[0])
    if right is not None:
        return right[-1] if transposed else right[-2] if len(right) > 1 else right[0]
    return (
        left[-1]
        if left and not ("transA" in node.attributes and node.attributes["transA"].as_int())
        else None
    )


def _reduced(node: ir.Node, sizes: Mapping[int, tuple[int, ...]]) -> int | None:
    dims, result = (_dims(value) or sizes.get(id(value)) for value in (node.inputs[0], node.outputs[0]))
    if dims is None or result is None:
        return None
    return math.prod(dims) // max(math.prod(result), 1)


def _averaged(node: ir.Node, sizes: Mapping[int, tuple[int, ...]]) -> int | None:
    """Return the number of losses that are summed or averaged."""
    if "reduction" in node.attributes and node.attributes["reduction"].as_string() == "none":
        return None
    dims = _dims(node.inputs[1]) or sizes.get(id(node.inputs[1]))
    return None if dims is None else math.prod(dims)


def _dims(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the sizes of a value if all are known; for quantized weights those before their DequantizeLinear."""
    producer = None if value is None else value.producer()
    if producer is not None and producer.op_type == "DequantizeLinear":
        value = producer.inputs[0]
    weights = constant_tensor(value)
    if weights is not None:
        return tuple(int(size) for size in weights.shape.numpy())
    if value is None or value.shape is None:
        return None
    sizes = tuple(dim for dim in value.shape if isinstance(dim, int))
    return sizes if len(sizes) == len(value.shape) else None


def output_nodes(model: Model) -> dict[str, NodeRef]:
    """Map graph outputs to the nodes that make them; inputs and constants have none."""
    made = ((value, value.producer()) for value in model.graph.outputs)
    return {
        value.name: NodeRef(name=node.name or "", op=node.op_type, value=value.name)
        for value, node in made
        if value.name and node is not None
    }


def grid_steps(model: Model, values: Iterable[ir.Value]) -> dict[str, float]:
    """Map names of values to their quantization step, where a DequantizeLinear makes them, maybe moved or joined.

    Of several scales the largest counts. A grid finer than others in the model does not count: differences from those
    arrive in their steps.
    """
    quantized = [node for node in model.graph if node.op_type == "QuantizeLinear"]
    coarsest = min(map(_bytes_of_grid, quantized), default=0)
    steps = {value.name or "": _step(value, coarsest) for value in values}
    return {name: step for name, step in steps.items() if step}


def _bytes_of_grid(node: ir.Node) -> int:
    """Return the bytes of a number on the grid of a QuantizeLinear or DequantizeLinear."""
    point = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    return 1 if point is None else point.dtype.itemsize


def _step(value: ir.Value, coarsest: int) -> float:
    """Return the step of a value's grid of at most `coarsest` bytes; 0 for none."""
    found = 0.0
    for source in _sources(value, CARRIERS):
        producer = source.producer()
        if (
            producer is not None
            and producer.op_type == "DequantizeLinear"
            and not 0 < coarsest < _bytes_of_grid(producer)
        ):
            scale = constant(producer.inputs[1])
            found = max(found, float(scale.max())) if scale is not None and scale.size else found
    return found


def constant_outputs(model: Model) -> frozenset[str]:
    """Return the graph outputs that depend on no input, or only on shapes, or have no elements."""
    inputs = {
        id(given)
        for given in model.graph.inputs
        if given.name not in model.graph.initializers and not _is_empty(given)
    }
    return frozenset(
        value.name
        for value in model.graph.outputs
        if value.name
        and (_is_empty(value) or not any(id(source) in inputs for source in _sources(value, None, _SHAPES)))
    )


def _is_empty(value: ir.Value) -> bool:
    return value.shape is not None and 0 in value.shape


def squashed_outputs(model: Model) -> frozenset[str]:
    """Return the graph outputs of functions that saturate on both sides, whose argument is no output itself."""
    return frozenset(
        value.name
        for value in model.graph.outputs
        if value.name
        and (node := _mover_source(value)) is not None
        and node.op_type in _SQUASHING
        and not (node.inputs[0] is not None and node.inputs[0].is_graph_output())
    )


def _mover_source(value: ir.Value) -> ir.Node | None:
    """Return the node whose result an output holds, in another shape or type."""
    node = value.producer()
    while node is not None and node.op_type in _MOVERS and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def unread_inputs(model: Model) -> frozenset[str]:
    """Return the inputs that no output depends on, not even on their shape."""
    read = {id(source) for output in model.graph.outputs for source in _sources(output, None, _NOTHING)}
    return frozenset(
        value.name
        for value in model.graph.inputs
        if value.name and value.name not in model.graph.initializers and id(value) not in read
    )


def unreached_outputs(model: Model) -> tuple[str, ...]:
    """Return the graph outputs that depend on no input, not even on its shape."""
    inputs = {id(given) for given in model.graph.inputs if given.name not in model.graph.initializers}
    return tuple(
        value.name
        for value in model.graph.outputs
        if value.name and not any(id(source) in inputs for source in _sources(value, None, _NOTHING))
    )


def saturating_outputs(model: Model) -> frozenset[str]:
    """Return the graph outputs of saturating functions; see `is_saturating`."""
    return frozenset(
        value.name
        for value in model.graph.outputs
        if value.name and not (value.dtype and value.dtype.is_integer()) and is_saturating(value)
    )


def is_saturating(value: ir.Value) -> bool:
    """Return whether a value is the result of a saturating function, maybe moved, averaged, masked or joined."""
    return any(map(_saturates, _nodes_behind(value)))


def _saturates(node: ir.Node) -> bool:
    """Return whether a node gives a Sigmoid's results, as classifiers of ai.onnx.ml may."""
    transform = node.attributes.get("post_transform") if node.domain == "ai.onnx.ml" else None
    if transform is None:
        return node.op_type in _SATURATING
    # TreeEnsemble-5 numbers the transforms.
    return transform.value in ("LOGISTIC", _LOGISTIC)


def voted_outputs(model: Model) -> frozenset[str]:
    """Return the graph outputs of trees' votes: of two classes one is 1 minus the other, exact to eps absolutely."""
    return frozenset(
        value.name
        for value in model.graph.outputs
        if value.name and any(node.op_type == "TreeEnsembleClassifier" for node in _nodes_behind(value))
    )


def added_constants(model: Model) -> dict[str, float]:
    """Map the graph outputs whose last step adds one number to all elements, or subtracts it, to its magnitude.

    What it is added to has that magnitude, and its rounding, where the result is smaller. Of several numbers the
    largest says nothing of the others' elements: masks hold -1e9.
    """
    found = dict[str, float]()
    for value in model.graph.outputs:
        for node in _nodes_behind(value):
            numbers = [constant(each) for each in node.inputs] if node.op_type in ("Add", "Sub") else []
            largest = max((_magnitude(each) for each in numbers if each is not None), default=0.0)
            if value.name and largest:
                found[value.name] = max(found.get(value.name, 0.0), largest)
    return found


def _magnitude(numbers: Array) -> float:
    """Return the magnitude of a single finite float; 0 for others."""
    is_one = numbers.size == 1 and numbers.dtype.kind == "f" and bool(np.isfinite(numbers).all())
    return abs(float(numbers.reshape(()))) if is_one else 0.0


def gated_outputs(model: Model) -> frozenset[str]:
    """Return the graph outputs that are numbers times their own Sigmoid, maybe moved, averaged, masked or joined."""
    return frozenset(
        value.name for value in model.graph.outputs if value.name and any(map(_is_gate, _nodes_behind(value)))
    )


def _nodes_behind(value: ir.Value) -> Iterator[ir.Node]:
    """Yield the nodes whose results `value` has, through operators that do not enlarge an error."""
    pending, seen = [value], set[int]()
    while pending:
        for source in _sources(pending.pop(), _KEEPERS):
            node = source.producer()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            kept = node.inputs[1:] if node.op_type == "Where" else _masked(node)
            pending += [each for each in kept if each is not None]


def _masked(node: ir.Node) -> list[ir.Value | None]:
    """Return the factors of a product that a boolean mask multiplies."""
    if node.op_type != "Mul" or not any(map(_is_flag, node.inputs)):
        return []
    return [value for value in node.inputs if not _is_flag(value)]


def _is_flag(value: ir.Value | None) -> bool:
    """Return whether a value is a Cast of booleans."""
    node = None if value is None else value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    made = None if source is None else source.producer()
    return source is not None and (
        source.dtype == ir.DataType.BOOL or (made is not None and made.op_type in _TESTS)
    )


def _is_gate(node: ir.Node) -> bool:
    """Return whether a node is x * Sigmoid(x)."""
    if node.op_type == "Swish":
        return True
    if node.op_type != "Mul" or len(node.inputs) != 2:
        return False
    first, second = node.inputs
    return any(
        gate is not None
        and (made := gate.producer()) is not None
        and made.op_type == "Sigmoid"
        and _unscaled(made.inputs[0]) is x
        for x, gate in ((first, second), (second, first))
    )


def _unscaled(value: ir.Value | None) -> ir.Value | None:
    """Return what a value is a constant multiple of."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Mul" or len(node.inputs) != 2:
        return value
    return next((x for i, x in enumerate(node.inputs) if constant(node.inputs[1 - i]) is not None), value)


def has_16_bit_activations(model: Model) -> bool:
    """Return whether the main graph quantizes values to 16 bits anywhere."""
    return any(
        node.op_type == "QuantizeLinear" and _zero_point_type(node) in _SIXTEEN_BITS for node in model.graph
    )


def _zero_point_type(node: ir.Node) -> ir.DataType | None:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return node.outputs[0].dtype
    tensor = constant_tensor(node.inputs[2])
    return node.inputs[2].dtype if tensor is None else tensor.dtype


_SIXTEEN_BITS = frozenset((ir.DataType.INT16, ir.DataType.UINT16))


def _sources(
    value: ir.Value, through: frozenset[str] | None, never: frozenset[str] = _SIZES
) -> Iterator[ir.Value]:
    """Yield `value` and the values it is computed from, back to the inputs and into the bodies of If and Loop.

    Args:
        through: the only operators to pass; None for all.
        never: operators not to pass.
    """
    pending, seen = [value], {id(value)}
    while pending:
        current = pending.pop()
        yield current
        producer = current.producer()
        if producer is None or producer.op_type in never or _is_constant(producer, current):
            continue
        inner = _inner_outputs(producer)
        needed: list[ir.Value | None] = list(inner)
        if through is None or producer.op_type in through:
            needed.extend(producer.inputs)
        fresh = {id(other): other for other in needed if other is not None and id(other) not in seen}
        seen.update(fresh)
        pending.extend(fresh.values())


def _is_constant(node: ir.Node, value: ir.Value) -> bool:
    """Return whether a result is the same for all inputs: of empty data, or the mask of an idle Dropout."""
    if node.inputs and node.inputs[0] is not None and _is_empty(node.inputs[0]):
        return True
    training = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    is_idle = training is None or not training.any()
    return node.op_type == "Dropout" and value is not node.outputs[0] and is_idle


def _inner_outputs(node: ir.Node) -> Iterator[ir.Value]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from attribute.as_graph().outputs
