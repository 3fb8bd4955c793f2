"""A `.tflite` file as the graph that data files are held against; its values have their ONNX names."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.errors import InputError
from onnxport.deployment.estimation.graph import Graph, Node, Tensor
from onnxport.formats.manifest import KEY, Manifest
from onnxport.formats.tflite.tensor_names import INNER

# Options that name the subgraphs which an operator runs.
_BODIES = (
    "thenSubgraphIndex",
    "elseSubgraphIndex",
    "condSubgraphIndex",
    "bodySubgraphIndex",
    "initSubgraphIndex",
)
_INNER = re.compile(rf"{re.escape(INNER)}\d*$")
_OMITTED = -1
_SUBGRAPHS = 8  # where a Model's vtable has its subgraphs: its third field
_ENTRY = struct.Struct("<I")


@dataclass(frozen=True)
class Subgraph:
    """One subgraph of a file.

    Attributes:
        index: in the file; 0 is the main one.
        graph: its operators; `Graph.opset` is 0.
        tensors: in the file's order.
    """

    index: int
    graph: Graph
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class TfliteFile:
    """What is in a file.

    Attributes:
        subgraphs: the main one, and those that its operators run, each once.
    """

    path: Path
    subgraphs: tuple[Subgraph, ...]

    @property
    def main(self) -> Subgraph:
        return self.subgraphs[0]

    def content(self, index: int) -> bytes:
        """The file with subgraph `index` in the place of the main one, for an interpreter that is asked about that."""
        content = bytearray(self.path.read_bytes())
        table = schema.Model.GetRootAs(content, 0)._tab
        # An entry of the vector is the distance from itself to its table, and all tables lie behind the vector.
        first = table.Vector(table.Offset(_SUBGRAPHS))
        other = first + _ENTRY.size * index
        starts = [at + _ENTRY.unpack_from(content, at)[0] for at in (first, other)]
        _ENTRY.pack_into(content, first, starts[1] - first)
        _ENTRY.pack_into(content, other, starts[0] - other)
        return bytes(content)


def read(path: Path) -> TfliteFile:
    """The graph of the `.tflite` file at `path`, which an interpreter has taken.

    Raises:
        InputError: it is truncated or damaged.
    """
    try:
        reader = _Reader(path.read_bytes())
        reader.subgraph(0)
    except (struct.error, IndexError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} is truncated or damaged", fix="copy, download or convert it again"
        ) from error
    return TfliteFile(path, tuple(reader.found[index] for index in sorted(reader.found)))


@dataclass(frozen=True)
class _Buffer:
    """A constant, read when it is asked for."""

    model: Any
    index: int
    dtype: str
    shape: tuple[int, ...]

    def numpy(self) -> Any:
        data = self.model.Buffers(self.index).DataAsNumpy()
        return np.frombuffer(bytes(data), self.dtype).reshape(self.shape)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._model = schema.Model.GetRootAs(content, 0)
        self._onnx_names = self._names()
        self.found: dict[int, Subgraph] = {}

    def subgraph(self, index: int) -> Graph:
        """Reads a subgraph and those that its operators run, each once."""
        if index in self.found:
            return self.found[index].graph
        table = self._model.Subgraphs(index)
        ends = self._ends() if index == 0 else {}
        tensors = [self._tensor(table.Tensors(i), ends.get(i, "")) for i in range(table.TensorsLength())]
        outputs = table.OutputsAsNumpy() if table.OutputsLength() else ()
        graph = Graph([], 0, frozenset(tensors[i].name for i in outputs))
        self.found[index] = Subgraph(index, graph, tuple(tensors))
        graph.nodes += _linked(
            [self._node(table.Operators(i), tensors) for i in range(table.OperatorsLength())]
        )
        return graph

    def _node(self, operator: Any, tensors: list[Tensor]) -> Node:
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        options = schema.OperatorT.InitFromObj(operator)
        attributes = {
            name: value
            for each in (options.builtinOptions, options.builtinOptions2)
            for name, value in (vars(each) if each is not None else {}).items()
        }
        outputs = _chosen(options.outputs, tensors)
        bodies = [attributes[name] for name in _BODIES if name in attributes]
        return Node(
            op=_operator(code),
            domain="",
            name=next((tensor.name for tensor in outputs if tensor is not None), ""),
            version=code.Version(),
            inputs=_chosen(options.inputs, tensors),
            outputs=outputs,
            attributes=attributes,
            bodies=tuple(self.subgraph(each) for each in bodies),
        )

    def _tensor(self, tensor: Any, end: str) -> Tensor:
        raw = (tensor.Name() or b"").decode(errors="replace").partition(";")[0]
        key = _INNER.sub("", raw)
        return Tensor(
            name=end or self._onnx_names.get(key, key),
            dtype=_element_types()[tensor.Type()],
            shape=_shape(tensor),
            stored=self._stored(tensor),
        )

    def _stored(self, tensor: Any) -> _Buffer | None:
        buffer = self._model.Buffers(tensor.Buffer())
        if not buffer.DataLength() and not buffer.Size():
            return None
        shape = (
            tuple(int(size) for size in np.atleast_1d(tensor.ShapeAsNumpy())) if tensor.ShapeLength() else ()
        )
        return _Buffer(self._model, tensor.Buffer(), _element_types()[tensor.Type()], shape)

    def _ends(self) -> dict[int, str]:
        """Index of each input's and output's tensor to its name in the signature."""
        found: dict[int, str] = {}
        for i in range(self._model.SignatureDefsLength()):
            signature = self._model.SignatureDefs(i)
            if signature.SubgraphIndex() == 0:
                ends = [signature.Inputs(j) for j in range(signature.InputsLength())]
                ends += [signature.Outputs(j) for j in range(signature.OutputsLength())]
                found |= {
                    end.TensorIndex(): self._onnx_names.get(end.Name().decode(), end.Name().decode())
                    for end in ends
                }
        return found

    def _names(self) -> dict[str, str]:
        """Name in the file to ONNX's, where our note tells of another."""
        for i in range(self._model.MetadataLength()):
            entry = self._model.Metadata(i)
            buffer = self._model.Buffers(entry.Buffer())
            if entry.Name() == KEY.encode() and buffer.DataLength():
                note = Manifest.from_json(bytes(buffer.DataAsNumpy()).decode())
                ends = {port.key: port.name for port in (*note.inputs, *note.outputs)}
                return {tap.key: name for name, tap in note.taps.items()} | ends
        return {}


def _linked(nodes: list[Node]) -> list[Node]:
    """`nodes`, which know from now on who reads from whom; several tensors may stand for one ONNX value."""
    made = {tensor: node for node in nodes for tensor in node.outputs if tensor is not None}
    for node in nodes:
        node.producers = list(
            dict.fromkeys(made[each] for each in node.inputs if each is not None and each in made)
        )
        for producer in node.producers:
            producer.consumers.append(node)
    return nodes


def _chosen(indices: Any, tensors: list[Tensor]) -> tuple[Tensor | None, ...]:
    return tuple(
        None if index == _OMITTED else tensors[index] for index in (indices if indices is not None else ())
    )


def _shape(tensor: Any) -> tuple[int | None, ...]:
    """Its dimensions; None for an open one."""
    if not tensor.ShapeLength():
        return ()
    sizes = tensor.ShapeSignatureAsNumpy() if tensor.ShapeSignatureLength() else tensor.ShapeAsNumpy()
    return tuple(None if size < 0 else int(size) for size in np.atleast_1d(sizes))


def _operator(code: Any) -> str:
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _operators()[number]
    return f"custom {(code.CustomCode() or b'').decode(errors='replace')}" if name == "CUSTOM" else name


@cache
def _operators() -> dict[int, str]:
    return {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}


@cache
def _element_types() -> dict[int, str]:
    return {
        number: name.lower() for name, number in vars(schema.TensorType).items() if isinstance(number, int)
    }
