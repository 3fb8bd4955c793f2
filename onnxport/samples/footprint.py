"""Estimate the memory of one run of a graph at given sizes, by shape inference.

The estimate is a lower bound: the peak of the live values when the nodes run in order. A value is live from the node
that computes it to the last that reads it. Views (Reshape) take nothing, and an elementwise node overwrites an operand
that no other node reads. Scratch memory of kernels (im2col) and values of unknown shape do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.formats.weightless import without_weights
from onnxport.samples.sizes import Shapes

# Operators whose result is their first operand in another shape.
_VIEWS = frozenset("Flatten Identity Reshape Squeeze Unsqueeze".split())
# Elementwise operators, whose result may overwrite an operand.
_ELEMENTWISE = frozenset(
    "Abs Add And BatchNormalization Cast Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater HardSigmoid HardSwish "
    "LeakyRelu Less Log LogSoftmax Max Min Mish Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin "
    "Softmax Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where Xor".split()
)
_POINTER = 8  # bytes of a string, in an array of pointers


@dataclass(frozen=True)
class Estimate:
    """Bytes that a run at some sizes takes at least.

    Attributes:
        inputs, outputs: one copy of each.
        graph: weights, and the peak of live values.
    """

    inputs: int
    outputs: int = 0
    graph: int = 0


class Footprint:
    """Estimates of one model's runs.

    Args:
        model: None where there is no graph to read; then only the inputs count.
        steps: runs in sequence whose outputs form one answer.
    """

    def __init__(self, model: Model | None, inputs: Sequence[TensorSpec], steps: int = 1) -> None:
        self._model, self._steps = model, steps
        self._dtypes = {spec.name: spec.dtype for spec in inputs}
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], Estimate] = {}

    def at(self, shapes: Mapping[str, tuple[int, ...]]) -> Estimate:
        """Return the estimate for inputs of these shapes."""
        key = tuple(sorted(shapes.items()))
        if key not in self._known:
            self._known[key] = self._estimate(dict(shapes))
        return self._known[key]

    def _estimate(self, shapes: Shapes) -> Estimate:
        inputs = sum(prod(shape) * _item_bytes(self._dtypes.get(name, "")) for name, shape in shapes.items())
        if self._model is None or self._proto is None:
            return Estimate(inputs)
        _set_shapes(self._proto, shapes)
        inferred = _infer(self._proto)
        if inferred is None:
            return Estimate(inputs)
        graph = inferred.graph
        outputs = sum(_bytes(value) for value in graph.output) * self._steps
        return Estimate(inputs, outputs, self._weights + self._schedule.peak(graph))

    @cached_property
    def _weights(self) -> int:
        """Bytes of weights in memory; external data are mapped."""
        assert self._model is not None
        return 0 if self._model.external_files else self._model.weight_bytes

    @cached_property
    def _proto(self) -> ModelProto | None:
        """The graph without weights; None where it cannot be serialized."""
        assert self._model is not None
        try:
            return ir.to_proto(without_weights(self._model.ir))
        except (ValueError, TypeError, RuntimeError):
            return None

    @cached_property
    def _schedule(self) -> _Schedule:
        assert self._proto is not None
        return _Schedule(self._proto.graph)


def _infer(proto: ModelProto) -> ModelProto | None:
    """Return the graph with the shapes that ONNX infers; None where it cannot."""
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return None


def _set_shapes(proto: ModelProto, shapes: Mapping[str, Iterable[int]]) -> None:
    for value in proto.graph.input:
        if value.name in shapes:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            for size in shapes[value.name]:
                dims.add(dim_value=size)


@dataclass(frozen=True)
class _Step:
    """A node: the values that it computes, those that are dead after it, and its subgraphs."""

    computed: tuple[str, ...]
    freed: tuple[str, ...]
    is_elementwise: bool
    bodies: tuple[_Schedule, ...]


class _Schedule:
    """The steps of a graph, independent of sizes."""

    def __init__(self, graph: GraphProto) -> None:
        self.reads: set[str] = set()  # values of outer graphs included
        roots: dict[str, str] = {}  # view -> the value that it shares memory with
        last: dict[str, int] = {}
        bodies = {}
        for number, node in enumerate(graph.node):
            bodies[number] = tuple(_Schedule(body) for body in _bodies(node))
            read = {*node.input}.union(*(body.reads for body in bodies[number]))
            self.reads |= read
            last |= dict.fromkeys((roots.get(name, name) for name in read), number)
            if _is_view(node):
                roots[node.output[0]] = roots.get(node.input[0], node.input[0])
            else:
                last |= dict.fromkeys(node.output, number)
        last |= dict.fromkeys((roots.get(value.name, value.name) for value in graph.output), len(graph.node))
        computed = {name for node in graph.node for name in node.output}
        freed: dict[int, list[str]] = {}
        for name in computed & last.keys():  # weights and inputs stay
            freed.setdefault(last[name], []).append(name)
        self._steps = tuple(
            _Step(
                () if _is_view(node) else tuple(node.output),
                tuple(freed.get(number, ())),
                node.op_type in _ELEMENTWISE,
                bodies[number],
            )
            for number, node in enumerate(graph.node)
        )

    def peak(self, graph: GraphProto) -> int:
        """Return the peak of the bytes of live values, without the graph's inputs.

        Args:
            graph: the same graph, with inferred shapes.
        """
        sizes = {value.name: _bytes(value) for value in (*graph.value_info, *graph.output)}
        live = peak = 0
        for number, step in enumerate(self._steps):
            new = sum(sizes.get(name, 0) for name in step.computed)
            reused = new if step.is_elementwise and any(sizes.get(each) == new for each in step.freed) else 0
            inside = 0
            if step.bodies:
                pairs = zip(step.bodies, _bodies(graph.node[number]), strict=True)
                inside = max(schedule.peak(body) for schedule, body in pairs)
            peak = max(peak, live + new - reused + inside)
            live += new - sum(sizes.get(name, 0) for name in step.freed)
        return peak


def _is_view(node: NodeProto) -> bool:
    return node.op_type in _VIEWS and bool(node.input)


def _bodies(node: NodeProto) -> list[GraphProto]:
    """Return the subgraphs of an If, a Loop or a Scan."""
    return [
        body
        for attribute in node.attribute
        for body in ([attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs)
    ]


def _bytes(value: ValueInfoProto) -> int:
    """Return the bytes of a tensor; 0 for an unknown shape or type, or another value."""
    tensor = value.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    if not tensor.elem_type or not tensor.HasField("shape") or any(dim < 0 for dim in dims):
        return 0
    if tensor.elem_type == TensorProto.STRING:
        return prod(dims) * _POINTER
    try:
        bits: int = ir.DataType(tensor.elem_type).bitwidth
    except (ValueError, TypeError):
        return 0
    return prod(dims) * bits // 8


def _item_bytes(dtype: str) -> int:
    """Return the bytes of one element of an array; of a string, those of its pointer."""
    try:
        return np.dtype("object" if dtype == "string" else dtype).itemsize
    except TypeError:
        return 1
