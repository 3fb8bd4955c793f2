"""Read a `.tflite` file as operator graphs; its values have the names of the ONNX model that it was made from."""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.growth import Growth
from onnxport.formats.tflite.labels import NAME as APP_METADATA
from onnxport.formats.tflite.limits import check_bodies
from onnxport.formats.tflite.ports import (
    Signature,
    damaged,
    leading_name,
    manifest_text,
    metadata_entry,
    read_signature,
)
from onnxport.formats.tflite.tensor_names import INNER

_ELEMENT = 64  # bytes that a number of an option counts as; in the file it has four
# Options that name the subgraphs which an operator runs.
_BODIES = [f"{name}SubgraphIndex" for name in ("then", "else", "cond", "body", "init")]
_INNER = re.compile(rf"{re.escape(INNER)}\d*$")
# What the FlatBuffers library raises for offsets that lead nowhere.
_DAMAGED = (struct.error, IndexError, TypeError, ValueError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Subgraph:
    """One subgraph of a file."""

    index: int  # in the file; 0 is the main one
    graph: OperatorGraph
    tensors: tuple[Tensor, ...]  # in the order of the file


@dataclass(frozen=True)
class TfliteModel:
    """What a `.tflite` file holds."""

    path: Path
    subgraphs: tuple[Subgraph, ...]  # in the order of the file; the first is the main one
    ends: Signature  # inputs, outputs and taps, as the file or our manifest in it names them
    stored: tuple[Tensor, ...]  # a tensor for each buffer with data
    version: int
    description: str
    signatures: int  # how many there are
    manifest: str | None  # our manifest, in a file of ours
    app_metadata: bytes | None  # TFLite metadata for apps

    @property
    def main(self) -> Subgraph:
        return self.subgraphs[0]


def read_tflite(path: Path, *, distinct: bool = False, sized: bool = False) -> TfliteModel:
    """Read the `.tflite` file at `path`; weights stay on disk. InputError if it is none, or damaged.

    Args:
        distinct: give no two tensors the name of one ONNX value. Else tensors inside a lowering have the node's name,
            and casts of an input or output have its name.
        sized: give open dimensions the size that they have until a caller resizes an input.
    """
    ends = read_signature(path)
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Reader(content, ends, distinct, sized).model(path)
    except _DAMAGED as error:
        raise damaged(path, error) from error


def operator_names(path: Path) -> list[str]:
    """Return the name of each operator in a file, as `read_tflite` names them, without reading more of it."""
    try:
        with path.open("rb") as file:
            model = schema.Model.GetRootAs(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), 0)
        names = [_code(model.OperatorCodes(i))[0] for i in range(model.OperatorCodesLength())]
        graphs = [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
        return [
            names[each.Operators(i).OpcodeIndex()] for each in graphs for i in range(each.OperatorsLength())
        ]
    except _DAMAGED as error:
        raise damaged(path, error) from error


class _Reader:
    def __init__(self, content: mmap.mmap, ends: Signature, distinct: bool, sized: bool) -> None:
        self._model = schema.Model.GetRootAs(content, 0)
        self._content, self._ends, self._distinct = content, ends, distinct
        self._sized = sized
        self._names = {tap.key: name for name, tap in ends.taps.items()}
        if not distinct:
            self._names |= {port.key: port.name for port, _ in (*ends.inputs, *ends.outputs)}
        self._codes = [_code(self._model.OperatorCodes(i)) for i in range(self._model.OperatorCodesLength())]
        self._stored: dict[int, Tensor] = {}
        self._growth = Growth(len(content))
        self._graphs: list[Subgraph] = []

    def model(self, path: Path) -> TfliteModel:
        count = self._model.SubgraphsLength()
        # Bodies are graphs that stand in the same list, so all graphs are there before their nodes are.
        self._graphs = [self._tensors(index) for index in range(count)]
        for each in self._graphs:
            table = self._model.Subgraphs(each.index)
            each.graph.nodes += [
                self._node(table.Operators(i), each.tensors) for i in range(table.OperatorsLength())
            ]
        self._check_bodies()
        return TfliteModel(
            path,
            tuple(self._graphs),
            self._ends,
            tuple(self._stored.values()),
            self._model.Version(),
            bytes(self._model.Description() or b"").decode(errors="replace"),
            self._model.SignatureDefsLength(),
            manifest_text(self._model, self._content),
            metadata_entry(self._model, self._content, APP_METADATA),
        )

    def _check_bodies(self) -> None:
        places = {id(each.graph): each.index for each in self._graphs}
        bodies = [
            [places[id(body)] for node in each.graph.nodes for body in node.bodies.values()]
            for each in self._graphs
        ]
        sizes = [len(each.graph.nodes) for each in self._graphs]
        check_bodies(sizes, bodies, len(self._content))

    def _tensors(self, index: int) -> Subgraph:
        """Return a subgraph without its nodes."""
        table = self._model.Subgraphs(index)
        ends = {i: port.name for port, i in (*self._ends.inputs, *self._ends.outputs)} if not index else {}
        tensors = tuple(self._tensor(table.Tensors(i), ends.get(i)) for i in range(table.TensorsLength()))
        graph = OperatorGraph(
            [],
            tuple(tensors[table.Inputs(i)] for i in range(table.InputsLength())),
            tuple(tensors[table.Outputs(i)] for i in range(table.OutputsLength())),
            tuple(each for each in tensors if each.is_constant),
        )
        return Subgraph(index, graph, tensors)

    def _tensor(self, tensor: Any, end: str | None) -> Tensor:
        name = leading_name(bytes(tensor.Name() or b"").decode(errors="replace"))
        if not self._distinct:
            name = _INNER.sub("", name)
        buffer = self._model.Buffers(tensor.Buffer())
        is_constant = bool(buffer.DataLength() or buffer.Size())
        grid = tensor.Quantization()
        scales = 0 if grid is None else grid.ScaleLength()
        found = Tensor(
            end or self._names.get(name, name),
            _names(schema.TensorType)[tensor.Type()].lower(),
            _shape(tensor, self._sized),
            is_constant,
            is_quantized=scales > 0,
            scale=float(grid.Scale(0)) if scales == 1 else 0.0,
            zero_point=int(grid.ZeroPoint(0)) if scales == 1 and grid.ZeroPointLength() else 0,
        )
        if is_constant:
            self._stored[tensor.Buffer()] = found
        return found

    def _node(self, operator: Any, tensors: tuple[Tensor, ...]) -> Node:
        op, version = self._codes[operator.OpcodeIndex()]
        attributes = _options(operator, self._growth)
        inputs = [operator.Inputs(i) for i in range(operator.InputsLength())]
        outputs = [operator.Outputs(i) for i in range(operator.OutputsLength())]
        return Node(
            op=op,
            version=version,
            inputs=tuple(tensors[i] if i >= 0 else None for i in inputs),
            outputs=tuple(tensors[i] if i >= 0 else None for i in outputs),
            attributes=attributes,
            bodies={name: self._graphs[attributes[name]].graph for name in _BODIES if name in attributes},
        )


def _options(operator: Any, growth: Growth) -> dict[str, Any]:
    """Return the operator's builtin options by their names in the schema."""
    unpacked = (
        schema.BuiltinOptionsCreator(operator.BuiltinOptionsType(), operator.BuiltinOptions()),
        schema.BuiltinOptions2Creator(operator.BuiltinOptions2Type(), operator.BuiltinOptions2()),
    )
    found = {
        name: value for options in unpacked if options is not None for name, value in vars(options).items()
    }
    growth.take(sum(_ELEMENT * value.size for value in found.values() if isinstance(value, np.ndarray)))
    return {
        name: tuple(value.tolist()) if isinstance(value, np.ndarray) else value
        for name, value in found.items()
    }


def _shape(tensor: Any, sized: bool) -> tuple[int | None, ...]:
    """Return its dimensions; None for an open one unless `sized`."""
    if not tensor.ShapeLength():
        return ()
    is_open = tensor.ShapeSignatureLength() and not sized
    sizes = tensor.ShapeSignatureAsNumpy() if is_open else tensor.ShapeAsNumpy()
    return tuple(None if size < 0 else int(size) for size in np.atleast_1d(sizes))


def _code(code: Any) -> tuple[str, int]:
    """Return the name and the version of an operator."""
    if code.CustomCode():
        return f"custom {bytes(code.CustomCode()).decode(errors='replace')}", code.Version()
    # Old files keep codes below 127 in the deprecated field alone.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    return _names(schema.BuiltinOperator).get(number, f"builtin {number}"), code.Version()


@cache
def _names(enumeration: type) -> dict[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}
