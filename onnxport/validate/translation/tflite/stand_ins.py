"""Parts of a `.tflite` file that have another form than their source: what the source has there stands for them.

Where the graphs differ between tensors that hold the same values (landmarks.py), the source's nodes between these
values become one function, which both graphs call:

    source   ... x -> Transpose -> Squeeze -> GRU -> h ...      ... x -> Part1 -> h ...
    file     ... x -> QUANTIZE -> WHILE of 40 operators -> h ...   ... x -> Part1 -> h ...

So the graphs are the same there, and behind and before it they are compared as anywhere. Nothing is taken on trust:
what the file's own operators give for x is compared with what the function gives for it, as for all operators
(arithmetic.py): to one step of a grid. Such a part is known by its answers on the fed values, and a report counts
them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.translation.graph_writer import OPSET
from onnxport.validate.translation.heads import PARTS
from onnxport.validate.translation.old_opsets import lift_with_onnx
from onnxport.validate.translation.tflite.contents import StoredTensor
from onnxport.validate.translation.tflite.landmarks import Landmark

# onnx-ir warns of every optional output of a function that has no name, which is how ONNX leaves one out.
logging.getLogger("onnx_ir.serde").setLevel(logging.ERROR)

# Around an operator; what lies before them is the same value.
_AROUND = frozenset(
    "QuantizeLinear DequantizeLinear Identity Transpose Reshape Cast Squeeze Unsqueeze".split()
)
# What layouts.py adds to the name of a value.
_OF_LAYOUTS = re.compile(r"(/(Reshape|Transpose)\.layout\d+)+$")


@dataclass(frozen=True)
class Part:
    """Nodes of a source that compute a landmark from others and from inputs of the model.

    Attributes:
        op: the function's name.
        inputs: names of the source's values that it reads.
        nodes: at the source's opset; `lifted` at that of lifted graphs.
    """

    op: str
    landmark: Landmark
    inputs: tuple[str, ...]
    nodes: Model
    lifted: Model


def places(pair: tuple[ir.Value, ir.Value], landmarks: Mapping[str, Landmark]) -> set[str]:
    """Return the landmarks behind which two values that should be the same differ, by the keys of their tensors.

    The first tensor that holds the source's value, or what that is a view of; else the last one before the file's
    value, if only views and grids lie between; else the next ones behind it.
    """
    value, original = pair
    for each in _before(original):
        name = _OF_LAYOUTS.sub("", each.name or "")
        same = [key for key, mark in landmarks.items() if mark.name == name]
        if same:
            return {min(same, key=lambda key: landmarks[key].tensor.index)}
    found = [each.name for each in _before(value) if each.name and each.name in landmarks]
    return {found[-1]} if found else _behind(value, landmarks)


def _before(value: ir.Value) -> Iterator[ir.Value]:
    """Yield a value, and those of which it is a view or a rounding."""
    at: ir.Value | None = value
    while at is not None:
        yield at
        node = at.producer()
        at = node.inputs[0] if node is not None and node.op_type in _AROUND else None


def _behind(value: ir.Value, landmarks: Mapping[str, Landmark]) -> set[str]:
    found: set[str] = set()
    pending, seen = [value], {value}
    while pending:
        for user, _ in pending.pop().uses():
            for result in user.outputs:
                if result.name and result.name in landmarks:
                    found.add(result.name)
                elif result not in seen:
                    seen.add(result)
                    pending.append(result)
    return found


def cut_out(source: Model, landmark: Landmark, ends: Iterable[Landmark], op: str) -> Part | None:
    """Return what computes a landmark in the source, from other landmarks and the inputs; None for nothing.

    Args:
        ends: where the part may begin: landmarks that the file computes before.
        op: a name that no other part has.
    """
    copy = source.clone()
    graph = copy.graph
    values = {each.name: each for node in graph for each in node.outputs}
    if landmark.name not in values:
        return None
    for each in {each.name: each for each in ends if each.name != landmark.name}.values():
        if (value := values.get(each.name)) is not None:
            given = ir.Value(name=each.name, type=_type(each.dtype), shape=ir.Shape(each.shape))
            value.name = f"{each.name}/own"
            value.replace_all_uses_with(given, replace_graph_outputs=True)
            graph.inputs.append(given)
    result = values[landmark.name]
    result.type, result.shape = _type(landmark.dtype), ir.Shape(landmark.shape)
    graph.outputs[:] = [result]
    common.RemoveUnusedNodesPass()(copy.ir)
    for value in [each for each in graph.inputs if not each.uses()]:
        graph.inputs.remove(value)
    lifted = lift_with_onnx(copy, OPSET) if len(graph) else None
    if lifted is None:
        return None
    return Part(op, landmark, tuple(each.name or "" for each in graph.inputs), copy, lifted)


def call_in_source(source: Model, parts: Sequence[Part]) -> Model:
    """Return a source that calls these parts."""
    copy = source.clone()
    for part in parts:
        values = _values(copy.graph)
        _declare(copy.ir, part.op, part.nodes)
        old = values[part.landmark.name]
        node = ir.node(part.op, [values[each] for each in part.inputs], domain=PARTS)
        _replace(old, node.outputs[0])
        node.outputs[0].type, node.outputs[0].shape = (
            _type(part.landmark.dtype),
            ir.Shape(part.landmark.shape),
        )
        copy.graph.append(node)
        copy.graph.sort()
    return copy


def call_in_file(lifted: Model, part: Part, landmarks: Mapping[str, Landmark]) -> bool:
    """Let a lifted file call a part in place of what computes its landmark.

    Args:
        landmarks: where it may begin, by the source's name.

    Returns:
        Whether the file has all that the part reads, and a grid that is written here.
    """
    values, tensor = _values(lifted.graph), part.landmark.tensor
    starts = {each: landmarks[each].tensor.key if each in landmarks else each for each in part.inputs}
    old = values.get(tensor.key)
    is_known = old is not None and all(each in values for each in starts.values())
    if old is None or not is_known or not (tensor.grid is None or tensor.grid.is_uniform):
        return False
    _declare(lifted.ir, part.op, part.lifted)
    writer = _Writer(lifted.graph, f"{tensor.key}/{part.op}")
    given = [
        writer.read(landmarks[name], values[key]) if name in landmarks else values[key]
        for name, key in starts.items()
    ]
    shape = tensor.shape if old.shape is None else tuple(int(each) for each in old.shape.numpy())
    _replace(old, writer.call(part, given, shape))
    lifted.graph.sort()
    return True


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    found = {each.name: each for node in graph for each in node.outputs}
    return {
        name: each for name, each in {**found, **{each.name: each for each in graph.inputs}}.items() if name
    }


def _replace(old: ir.Value, value: ir.Value) -> None:
    """Put a value, with the old one's name and type, in the place of another."""
    value.type, value.shape = old.type, old.shape
    old.name, value.name = f"{old.name}/own", old.name
    old.replace_all_uses_with(value, replace_graph_outputs=True)


def _declare(model: ir.Model, op: str, part: Model) -> None:
    """Add a part to a model as a function. Functions have no initializers."""
    copy = part.clone().graph
    for value in list(copy.initializers.values()):
        node = ir.node("Constant", [], {"value": value.const_value})
        copy.initializers.pop(value.name or "")
        node.outputs[0].name, node.outputs[0].type = value.name, value.type
        value.replace_all_uses_with(node.outputs[0], replace_graph_outputs=True)
        copy.insert_before(copy[0], node)
    model.functions[(PARTS, op, "")] = ir.Function(PARTS, op, graph=copy, attributes=[])
    model.graph.opset_imports[PARTS] = 1
    for domain, version in copy.opset_imports.items():
        model.graph.opset_imports.setdefault(domain, version)


def _type(dtype: np.dtype) -> ir.TensorType:
    return ir.TensorType(ir.DataType.from_numpy(dtype))


class _Writer:
    """Adds nodes to a lifted graph.

    Args:
        prefix: of the names of all values.
    """

    def __init__(self, graph: ir.Graph, prefix: str) -> None:
        self._graph, self._prefix, self._count = graph, prefix, 0

    def read(self, landmark: Landmark, value: ir.Value) -> ir.Value:
        """Return the source's value in a landmark's tensor."""
        if landmark.tensor.grid is not None:
            value = self._add("DequantizeLinear", [value, *self._grid(landmark.tensor)])
        moved = [landmark.shape[each] for each in landmark.order]
        value = self._add("Reshape", [value, self._store(np.array(moved, np.int64))])
        value = self._transpose(value, [int(each) for each in np.argsort(landmark.order)])
        stored = landmark.tensor.dtype if landmark.tensor.grid is None else np.float32
        return self._cast(value, stored, landmark.dtype)

    def call(self, part: Part, given: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
        """Return a part's result as its landmark's tensor holds it, with the tensor's sizes."""
        landmark = part.landmark
        value = self._add(part.op, given, PARTS)
        value.type, value.shape = _type(landmark.dtype), ir.Shape(landmark.shape)
        value = self._transpose(value, landmark.order)
        value = self._add("Reshape", [value, self._store(np.array(shape, np.int64))])
        if landmark.tensor.grid is None:
            return self._cast(value, landmark.dtype, np.dtype(landmark.tensor.dtype))
        return self._add("QuantizeLinear", [value, *self._grid(landmark.tensor)])

    def _grid(self, tensor: StoredTensor) -> list[ir.Value]:
        assert tensor.grid is not None
        zero = tensor.grid.zero_point.astype(tensor.dtype)
        return [self._store(tensor.grid.scale.reshape(())), self._store(zero.reshape(()))]

    def _transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        is_plain = list(order) == sorted(order)
        return value if is_plain else self._add("Transpose", [value], perm=list(order))

    def _cast(self, value: ir.Value, given: Any, dtype: np.dtype) -> ir.Value:
        if np.dtype(given) == dtype:
            return value
        return self._add("Cast", [value], to=int(ir.DataType.from_numpy(dtype)))

    def _add(
        self, op: str, operands: Sequence[ir.Value], domain: str = "", **attributes: int | Sequence[int]
    ) -> ir.Value:
        node = ir.node(op, operands, attributes, domain=domain)
        node.name = node.outputs[0].name = self._next()
        self._graph.append(node)
        return node.outputs[0]

    def _store(self, array: Array) -> ir.Value:
        value = ir.Value(
            name=self._next(),
            type=_type(array.dtype),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array),
        )
        self._graph.register_initializer(value)
        return value

    def _next(self) -> str:
        self._count += 1
        return f"{self._prefix}.{self._count}"
