"""The contents of a `.tflite` file: its operators, and its tensors with grids and constants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from onnxport.core.arrays import Array
from onnxport.formats.graph import Node
from onnxport.formats.graph.tflite import read_tflite

_TYPES = {number: name.lower() for name, number in vars(schema.TensorType).items() if isinstance(number, int)}
_INTEGERS = frozenset({"int4", "int8", "int16", "int32", "int64", "uint8"})


@dataclass(frozen=True)
class Grid:
    """scale * (stored - zero point), one for the tensor or one for each index of `axis`."""

    scale: Array
    zero_point: Array
    axis: int

    @property
    def is_uniform(self) -> bool:
        return self.scale.size == 1


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the main subgraph.

    Attributes:
        index: in the file.
        name: of the ONNX value that it holds, or the file's own.
        dtype: NumPy's name of its elements.
        shape: as declared.
        grid: None for numbers in their own right.
        data: of a constant.
        is_blocked: whether its grid lies in blocks, which are not read.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    grid: Grid | None = None
    data: Array | None = None
    is_blocked: bool = False

    @property
    def key(self) -> str:
        """A name that no other tensor has."""
        return f"{self.name}:{self.index}"


@dataclass(frozen=True)
class Operator:
    """An operator: its name in the schema, its tensors' indices (-1 for a missing one), and its options."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class StoredGraph:
    """The main subgraph of a file; `graphs` is how many there are."""

    tensors: tuple[StoredTensor, ...]
    operators: tuple[Operator, ...]
    graphs: int
    content: bytes


def read_stored(path: Path) -> StoredGraph:
    """Read the main subgraph with its constants.

    Raises:
        InputError: no `.tflite` file, or a damaged one.
    """
    named = read_tflite(path)
    content = path.read_bytes()
    model = schema.Model.GetRootAs(content, 0)
    table = model.Subgraphs(0)
    tensors = tuple(
        _tensor(model, table.Tensors(index), index, content, named.main.tensors[index].name)
        for index in range(table.TensorsLength())
    )
    operators = tuple(
        _operator(table.Operators(index), node) for index, node in enumerate(named.main.graph.nodes)
    )
    return StoredGraph(tensors, operators, len(named.subgraphs), content)


def _operator(operator: Any, node: Node) -> Operator:
    inputs, outputs = (
        tuple(int(each) for each in ends) if not isinstance(ends, int) else ()
        for ends in (operator.InputsAsNumpy(), operator.OutputsAsNumpy())
    )
    return Operator(node.op, inputs, outputs, dict(node.attributes))


def _tensor(model: Any, tensor: Any, index: int, content: bytes, name: str) -> StoredTensor:
    dtype = _TYPES[tensor.Type()]
    shape = tuple(int(each) for each in np.atleast_1d(tensor.ShapeAsNumpy())) if tensor.ShapeLength() else ()
    buffer = model.Buffers(tensor.Buffer())
    raw: Array | None = None
    if buffer.DataLength():
        raw = buffer.DataAsNumpy()
    elif buffer.Size():
        raw = np.frombuffer(content, np.uint8, buffer.Size(), buffer.Offset())
    elif tensor.Buffer() and 0 in shape:
        raw = np.zeros(0, np.uint8)
    quantization = tensor.Quantization()
    grid = _grid(quantization) if dtype in _INTEGERS and quantization is not None else None
    is_blocked = quantization is not None and bool(quantization.DetailsType())
    data = None if raw is None or dtype in ("string", "variant") else _elements(raw, dtype, shape)
    return StoredTensor(index, name, dtype, shape, grid, data, is_blocked)


def _grid(quantization: Any) -> Grid | None:
    if not quantization.ScaleLength():
        return None
    scale = quantization.ScaleAsNumpy().astype(np.float32)
    zero = (
        quantization.ZeroPointAsNumpy().astype(np.int64)
        if quantization.ZeroPointLength()
        else np.zeros(1, np.int64)
    )
    return Grid(scale, np.broadcast_to(zero, scale.shape), int(quantization.QuantizedDimension()))


def _elements(raw: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "int4":  # two in a byte, the lower one first
        pairs = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[: int(np.prod(shape))]
        return np.where(pairs > 7, pairs.astype(np.int8) - 16, pairs).astype(ml_dtypes.int4).reshape(shape)
    numbers = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return np.frombuffer(raw.tobytes(), numbers).reshape(shape)
